# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Chooses among options with a fine-tuned model.

  albert choose runs/race "red" "green" --question="Ada's kite is _ ." \\
    --context="Ada has a red kite."
  albert choose runs/race --input_file=questions.jsonl --json > choices.jsonl

MODEL is the output directory of a fine-tuning run. The options are printed
with their probabilities, the most probable first. Without OPTION, the
questions are those of --input_file: rows with the columns options (in .csv
and .tsv a JSON list), context, question and perhaps id; of each, the chosen
option is printed. In Python:
`albert_tf.MultipleChoice.load(MODEL).choose(options, …)`.
"""

from __future__ import annotations

from absl import flags

import albert_tf
from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_path
from albert_tf.commands.common import define_json_flag, show, trained_folder
from albert_tf.errors import AlbertError
from albert_tf.tasks.multiple_choice.data import read_questions


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("question", None, 'The question, perhaps with a blank "_".')
    flags.DEFINE_string("context", None, "The text that the question is about.")
    define_path("input_file", None, "File with questions, .jsonl, .csv or .tsv.")
    define_json_flag()


@script.command(define_flags, "MODEL", "[OPTION…]")
def main(path: str, *options: str) -> None:
    """Runs the command."""
    question, context, file = FLAGS.question or "", FLAGS.context or "", FLAGS.input_file
    if bool(file) == bool(options or question or context):
        raise AlbertError("Give either OPTION… or --input_file with questions; see --help.")
    asked = [{"options": options, "question": question, "context": context}]
    examples = read_questions(file or asked, "choose")
    results, model = [], albert_tf.MultipleChoice.load(trained_folder(path))
    for example, choice in zip(examples, model.choices(examples)):
        ranked = sorted(zip(choice.probabilities, example.options), key=lambda pair: -pair[0])
        rows = [(f"{probability:6.1%}", option) for probability, option in ranked]
        own, rows = ({"id": example.id}, rows[:1]) if file else ({}, rows)
        results.append(({**own, **choice._asdict()}, rows))
    show(results)
