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
from collections.abc import Sequence
from typing import Any

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
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import short_repr
from albert_tf.io.text_tables import label_text, table_kind
from albert_tf.tasks.tables import read_texts

FLAGS = flags.FLAGS
ARGUMENTS = ("MODEL", "[TEXT…]")


def define_flags() -> None:
    """Defines the flags of this command."""
    define_input_flag(
        "File with one text per line, or two texts with a tab between them; or a table (.csv, "
        ".tsv, .jsonl, .json, .parquet or .xlsx) with the columns that the model was trained on."
    )
    define_json_flag()


def _main(path: str, *given: str) -> None:
    folder = trained_folder(path)
    file = FLAGS.input_file
    is_table = file and not given and table_kind(file)
    texts = [] if is_table else input_lines(given)
    # TensorFlow takes seconds to import; wrong arguments and --help should not wait for it.
    from albert_tf.tasks.classification.classifier import TextClassifier, TextRegressor
    from albert_tf.tasks.classification.task import TextClassificationTask
    from albert_tf.weights.run_folder import RunFolder

    has_labels = RunFolder(folder).task(TextClassificationTask.name).get("labels")
    model = (TextClassifier if has_labels else TextRegressor).load(folder)
    if is_table:
        columns = dataclasses.replace(model.task.spec.columns, label=None)
        examples = read_texts(file, columns)
        rows = [(x.text, x.text_pair)[: 1 + model.takes_pairs] for x in examples]
    else:
        rows = _pairs(texts, bool(given)) if model.takes_pairs else [(text,) for text in texts]
    predictions = model.predict(*map(list, zip(*rows)))
    if FLAGS.json:
        for row, predicted in zip(rows, predictions):
            print_json({**dict(zip(("text", "second_text"), row)), **_values(predicted)})
        return
    print_table((*_cells(x), *row) for x, row in zip(predictions, rows))


def _values(predicted: Any) -> dict[str, Any]:
    """Returns a prediction as JSON values: a label, several, or a number."""
    if isinstance(predicted, list):
        return {"labels": [label._asdict() for label in predicted]}
    return predicted._asdict() if isinstance(predicted, tuple) else {"value": float(str(predicted))}


def _cells(predicted: Any) -> Sequence[str]:
    if isinstance(predicted, list):
        shown = (f"{label_text(x.label)} {x.probability:.1%}" for x in predicted)
        return [", ".join(shown) or "none"]
    if isinstance(predicted, tuple):
        return f"{predicted.probability:6.1%}", label_text(predicted.label)
    return [f"{predicted:8.3f}"]


def _pairs(texts: list[str], given: bool) -> list[tuple[str, str]]:
    """Returns pairs of texts, from two arguments or one line each."""
    if given and len(texts) % 2:
        raise AlbertError("The model takes pairs of texts; give an even number of them.")
    if given:
        return list(zip(texts[::2], texts[1::2]))
    for number, line in enumerate(texts, start=1):
        if line.count("\t") != 1:
            raise AlbertError(
                f"The model takes pairs of texts, but line {number}, {short_repr(line)}, is not "
                "two texts with a tab between them."
            )
    return [tuple(line.split("\t")) for line in texts]


def main() -> None:
    """Runs the command."""
    script.run(_main, define_flags, ARGUMENTS)
