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

import albert_tf
from albert_tf.cli import script
from albert_tf.commands.common import (
    define_use_flags,
    given_table,
    input_lines,
    show,
    trained_folder,
)
from albert_tf.io.text_tables import data_rows
from albert_tf.tasks.tagging.data import read_tagged, tagged_texts


def define_flags() -> None:
    """Defines the flags of this command."""
    define_use_flags("File with one text per line, or rows (.jsonl, .json or .parquet).")


@script.command(define_flags, "MODEL", "[TEXT…]")
def main(path: str, *given: str) -> None:
    """Runs the command."""
    if table := given_table(given):
        texts = read_tagged(table)
    else:
        texts = tagged_texts(data_rows({"text": input_lines(given)}, ""))
    results = []
    for text, found in zip(texts, albert_tf.TextTagger.load(trained_folder(path)).tagged(texts)):
        entities = found.entities
        rows = [(f"{x.score:6.1%}", x.label, f"{x.start}-{x.end}", x.text) for x in entities]
        results.append(({"text": text.text, "entities": [x._asdict() for x in entities]}, rows))
    show(results)
