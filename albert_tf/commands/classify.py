# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicts the label of each text with a fine-tuned model, its labels if it may
have several, or its number with a regression model.

  albert classify runs/authors "The ship sailed on the sea." \\
    "She danced at the ball."
  albert classify runs/reviews --input_file=reviews.txt --json > labels.jsonl
  albert classify runs/rte "A man is sleeping." "Nobody is awake."

MODEL is the output directory of a fine-tuning run. Without TEXT, each line of
--input_file or of standard input is a text. A model that was trained on pairs
takes two texts at a time; in lines, a tab separates them. Of a table (.csv,
.tsv, .jsonl, .json, .parquet, .xlsx), the model's columns are read. In Python:
`albert_tf.TextClassifier.load(MODEL).predict(texts)`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import albert_tf
from albert_tf.cli import script
from albert_tf.commands.common import (
    define_use_flags,
    given_table,
    input_lines,
    show,
    trained_folder,
)
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import short_repr
from albert_tf.io.text_tables import label_text
from albert_tf.tasks.tables import read_texts
from albert_tf.weights.run_folder import find_task


def define_flags() -> None:
    """Defines the flags of this command."""
    define_use_flags(
        "File with one text per line, or two texts with a tab between them; or a table (.csv, "
        ".tsv, .jsonl, .json, .parquet or .xlsx) with the columns that the model was trained on."
    )


@script.command(define_flags, "MODEL", "[TEXT…]")
def main(path: str, *given: str) -> None:
    """Runs the command."""
    table, folder = given_table(given), trained_folder(path)
    texts = [] if table else input_lines(given)
    has_labels = find_task(folder).get("labels")
    kind = albert_tf.TextClassifier if has_labels else albert_tf.TextRegressor
    model = kind.load(folder)
    if table:
        examples = read_texts(table, dataclasses.replace(model.task.spec.columns, label=None))
        rows = [(x.text, x.text_pair)[: 1 + model.takes_pairs] for x in examples]
    else:
        rows = _pairs(texts, bool(given)) if model.takes_pairs else [(text,) for text in texts]
    results = []
    for row, predicted in zip(rows, model.predict(*map(list, zip(*rows)))):
        values, cells = _shown(predicted)
        results.append(({**dict(zip(("text", "second_text"), row)), **values}, [[*cells, *row]]))
    show(results)


def _shown(predicted: Any) -> tuple[dict[str, Any], list[str]]:
    """Returns a prediction, a label, several or a number, as JSON values and as cells."""
    if isinstance(predicted, list):
        labels = [f"{label_text(x.label)} {x.probability:.1%}" for x in predicted] or ["none"]
        return {"labels": [x._asdict() for x in predicted]}, [", ".join(labels)]
    if isinstance(predicted, tuple):
        cells = [f"{predicted.probability:6.1%}", label_text(predicted.label)]
        return predicted._asdict(), cells
    return {"value": float(str(predicted))}, [f"{predicted:8.3f}"]


def _pairs(texts: list[str], given: bool) -> list[tuple[str, str]]:
    """Returns pairs of texts, from two arguments or one line each."""
    if not given:
        for number, line in enumerate(texts, start=1):
            if line.count("\t") != 1:
                raise AlbertError(
                    f"The model takes pairs of texts, but line {number}, {short_repr(line)}, is "
                    "not two texts with a tab between them."
                )
        texts = "\t".join(texts).split("\t")
    if len(texts) % 2:
        raise AlbertError("The model takes pairs of texts; give an even number of them.")
    return list(zip(texts[::2], texts[1::2]))
