# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Chooses among options with a fine-tuned model.

  albert choose runs/race "red" "green" --question="Ada's kite is _ ." \\
    --context="Ada has a red kite."

MODEL is the output directory of a fine-tuning run. The options are printed
with their probabilities, the most probable first. In Python:
`albert_tf.MultipleChoice.load(MODEL).choose(options, …)`.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.commands.common import define_json_flag, print_json, print_table, trained_folder

FLAGS = flags.FLAGS
ARGUMENTS = ("MODEL", "OPTION…")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("question", None, 'The question, perhaps with a blank "_".')
    flags.DEFINE_string("context", None, "The text that the question is about.")
    define_json_flag()


def _main(path: str, *options: str) -> None:
    folder = trained_folder(path)
    # TensorFlow takes seconds to import; wrong arguments and --help should not wait for it.
    from albert_tf.tasks.multiple_choice.chooser import MultipleChoice

    question, context = FLAGS.question or "", FLAGS.context or ""
    choice = MultipleChoice.load(folder).choose(options, question, context)
    if FLAGS.json:
        print_json(choice._asdict())
        return
    ranked = sorted(zip(choice.probabilities, options), key=lambda pair: -pair[0])
    print_table((f"{probability:6.1%}", option) for probability, option in ranked)


def main() -> None:
    """Runs the command."""
    script.run(_main, define_flags, ARGUMENTS)
