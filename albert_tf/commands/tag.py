# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds entities in texts, or tags their words, with a fine-tuned model.

  albert tag runs/ner "Ada Lovelace was born in London."
  albert tag runs/ner --input_file=articles.txt --json > entities.jsonl
  albert tag runs/ner --input_file=sentences.jsonl --json > entities.jsonl

MODEL is the output directory of a fine-tuning run. Without TEXT, each line of
--input_file or of standard input is a text; of a .jsonl, .json or .parquet
file, each row is one, with tokens or text. Each entity is printed with its
label, its score and its characters; with --json, those of a text in a line.
In Python: `albert_tf.TextTagger.load(MODEL).predict(texts)`.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.commands.common import (
    define_input_flag,
    define_json_flag,
    input_lines,
    print_json,
    print_table,
    trained_folder,
)
from albert_tf.io.text_tables import data_rows, table_kind
from albert_tf.tasks.tagging.data import read_tagged, tagged_texts

FLAGS = flags.FLAGS
ARGUMENTS = ("MODEL", "[TEXT…]")


def define_flags() -> None:
    """Defines the flags of this command."""
    define_input_flag("File with one text per line, or rows (.jsonl, .json or .parquet).")
    define_json_flag()


def _main(path: str, *given: str) -> None:
    folder = trained_folder(path)
    file = "" if given else FLAGS.input_file or ""
    lines = [] if table_kind(file) else input_lines(given)
    # TensorFlow takes seconds to import; wrong arguments and --help should not wait for it.
    from albert_tf.tasks.tagging.tagger import TextTagger

    texts = read_tagged(file) if table_kind(file) else tagged_texts(data_rows({"text": lines}, ""))
    for text, found in zip(texts, TextTagger.load(folder).tagged(texts)):
        entities = found.entities
        if FLAGS.json:
            print_json({"text": text.text, "entities": [entity._asdict() for entity in entities]})
        elif entities:
            print_table(
                (f"{x.score:6.1%}", x.label, f"{x.start}-{x.end}", x.text) for x in entities
            )


def main() -> None:
    """Runs the command."""
    script.run(_main, define_flags, ARGUMENTS)
