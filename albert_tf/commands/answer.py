# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers a question about a text with a fine-tuned model.

  albert answer runs/squad "Who wrote it?" \\
    "It was written by Ada Lovelace in 1843."
  albert answer runs/squad "Who wrote it?" --input_file=article.txt --json
  albert answer runs/squad "Who wrote it?" < article.txt

MODEL is the output directory of a fine-tuning run. Without TEXT, the text is
--input_file or standard input. In Python:
`albert_tf.QuestionAnswerer.load(MODEL).answer(question, text)`.
"""

from __future__ import annotations

import dataclasses

from absl import flags

from albert_tf.cli import script
from albert_tf.commands.common import (
    define_input_flag,
    define_json_flag,
    input_lines,
    print_json,
    trained_folder,
)

FLAGS = flags.FLAGS
ARGUMENTS = ("MODEL", "QUESTION", "[TEXT]")


def define_flags() -> None:
    """Defines the flags of this command."""
    define_input_flag("File with the text.")
    define_json_flag()


def _main(path: str, question: str, *given: str) -> None:
    folder = trained_folder(path)
    text = "\n".join(input_lines(given))
    # TensorFlow takes seconds to import; wrong arguments and --help should not wait for it.
    from albert_tf.tasks.squad.answerer import QuestionAnswerer

    found = QuestionAnswerer.load(folder).answer(question, text)
    if FLAGS.json:
        print_json(dataclasses.asdict(found))
    else:
        print(found.summary())


def main() -> None:
    """Runs the command."""
    script.run(_main, define_flags, ARGUMENTS)
