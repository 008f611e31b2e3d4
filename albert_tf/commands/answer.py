# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers questions about texts with a fine-tuned model.

  albert answer runs/squad "Who wrote it?" \\
    "It was written by Ada Lovelace in 1843."
  albert answer runs/squad "Who wrote it?" --input_file=article.txt --json
  albert answer runs/squad "Who wrote it?" < article.txt
  albert answer runs/squad --input_file=questions.csv --json > answers.jsonl

MODEL is the output directory of a fine-tuning run. Without TEXT, the text is
--input_file or standard input. Without QUESTION, --input_file has questions:
rows with the columns question, context and perhaps id (.csv, .tsv or .jsonl),
or SQuAD's JSON. In Python:
`albert_tf.QuestionAnswerer.load(MODEL).answer(question, text)`.
"""

from __future__ import annotations

import albert_tf
from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS
from albert_tf.commands.common import define_use_flags, input_lines, print_json, trained_folder
from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.data import Question, read_squad


def define_flags() -> None:
    """Defines the flags of this command."""
    define_use_flags("File with the text, or with questions.")


@script.command(define_flags, "MODEL", "[QUESTION]", "[TEXT]")
def main(path: str, question: str | None = None, *given: str) -> None:
    """Runs the command."""
    if question is not None:
        text = "\n".join(input_lines(given))
        questions = [Question("", question, text, (), False, "The text")]
    elif FLAGS.input_file:
        questions = read_squad(FLAGS.input_file)
    else:
        raise AlbertError("QUESTION or --input_file is missing; see --help.")
    model = albert_tf.QuestionAnswerer.load(trained_folder(path))
    for asked, found in zip(questions, model.answers(questions)):
        row = {} if asked.question is question else {"id": asked.id, "question": asked.question}
        if FLAGS.json:
            print_json({**row, **found._asdict()})
        else:
            print(*[*row.values()][1:], found.summary(), sep="\n")
