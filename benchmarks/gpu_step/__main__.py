# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The pretraining step as one XLA program, on a GPU that has JAX and no TensorFlow.

  python -m benchmarks.gpu_step emit --output_dir=runs/gpu_step
  python3 -m benchmarks.gpu_step run --programs=runs/gpu_step --output=results.json

"emit" lowers the step with TensorFlow, for several models and lengths, and stores what TensorFlow
computes on the CPU in the first steps of one. "run" compares with that and measures, where the GPU
is. --help after the command explains it.
"""

from __future__ import annotations

import sys

#: Commands that must not import TensorFlow.
_ON_THE_DEVICE = ("run",)


def main() -> None:
    """Runs the command that the first argument names."""
    if sys.argv[1:2] and sys.argv[1] in _ON_THE_DEVICE:
        from benchmarks.gpu_step import run

        run.main(sys.argv[2:])
        return
    from albert_tf.cli import script
    from benchmarks.gpu_step import emit

    script.run_command({"emit": (emit.main, emit.define_flags)}, __doc__)


if __name__ == "__main__":
    main()
