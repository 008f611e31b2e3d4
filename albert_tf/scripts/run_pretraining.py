# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrains ALBERT on records of albert create-pretraining-data.

  albert pretrain --do_eval --input_file=records/train \\
    --eval_input_file=records/heldout --albert_config_file=albert_base_v2 \\
    --output_dir=runs/base --train_batch_size=256

The same command resumes a run: weights, optimizer, step and position in the
data continue where they were. On SIGTERM or SIGINT (Ctrl-C) it finishes the
current steps, saves, and exits with 143 or 130; so it does on SIGHUP and
SIGUSR1. A second signal ends it without saving. Errors exit with 1.
"""

from __future__ import annotations

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, refuse_flags
from albert_tf.tasks.flags import define_run_flags, print_commands, requested, run_settings
from albert_tf.tasks.pretraining.config import PLANNED, PretrainingConfig


def define_flags() -> None:
    """Defines the flags of this script."""
    define_run_flags(PretrainingConfig, do_train=True)


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    requested()
    if FLAGS.time_budget:
        refuse_flags(PLANNED, "--time_budget plans it; leave it out.")
    config = PretrainingConfig(**run_settings(PretrainingConfig))
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.pretraining.run import pretrain

    pretrain(config, FLAGS.do_train, FLAGS.do_eval)
    print_commands('fill-mask {} "A [MASK] text."', config.output_dir)
