# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the pretraining step as one XLA program on a GPU that needs JAX but not TensorFlow.

  python -m benchmarks.gpu_step emit --output_dir=runs/gpu_step
  python3 -m benchmarks.gpu_step run --programs=runs/gpu_step --output=results.json

"emit" lowers the step with TensorFlow for several models and lengths, and stores the losses that
TensorFlow computes on the CPU in the first steps of one of them. "run", on the machine with the
GPU, compares its losses with these and measures the speed. For the flags of a command, add --help
after it.

To train on that GPU, "text" stores the text that batches are built from, "pretrain" trains, and
"checkpoint" turns the result into a run of run_pretraining.py; benchmarks/README.md has the
commands.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command that the first argument names."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    # These must do without TensorFlow.
    if command == ["run"]:
        from benchmarks.gpu_step import run

        run.main(arguments)
    elif command == ["pretrain"]:
        from benchmarks.gpu_step import pretrain

        pretrain.main(arguments)
    else:
        _main_with_tensorflow()


def _main_with_tensorflow() -> None:
    from benchmarks.gpu_step import checkpoint, emit
    from benchmarks.subcommands import run_command

    commands = {
        "emit": (emit.main, emit.define_flags),
        "text": (checkpoint.write_text, checkpoint.define_text_flags),
        "checkpoint": (checkpoint.write_checkpoint, checkpoint.define_checkpoint_flags),
        # Listed for the error of an unknown command.
        "run": (),
        "pretrain": (),
    }
    run_command(commands, __doc__)


if __name__ == "__main__":
    main()
