# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts and tables, plain and compressed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from albert_tf.io.text_files import read_lines
from albert_tf.io.text_tables import TextColumns, read_text_table
from albert_tf.tasks.classification.task import label_set, label_values
from tests.fuzz.targets.target import Target, written

TEXT = "a b cab. A b, 2013, d!\n\nabc def\n"


_TABLE = 'id\ttext\tpair\tlabel\n1\ta "b\tc\t1\n2\td\te\t0\n'


_JSON_LINES = "".join(
    json.dumps({"id": i, "text": "a b", "pair": "c", "label": label}) + "\n"
    for i, label in enumerate("xyx")
)


def _compressed(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import bz2
        import gzip
        import lzma

        compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
        path = folder / f"text.txt{suffix}"
        path.write_bytes(compress((TEXT * 30).encode()))
        return path

    return make


def _read_table(path: Path) -> None:
    columns = TextColumns("text", "pair", "label", "id")
    examples = read_text_table(str(path), columns)
    labels = label_set(examples)
    label_values(examples, labels if "x" in labels else ())


TARGETS = {
    "text": Target(written("text.txt", TEXT), lambda path: list(read_lines(str(path)))),
    **{
        f"text{suffix}": Target(_compressed(suffix), lambda path: list(read_lines(str(path))))
        for suffix in (".gz", ".bz2", ".xz")
    },
    "tsv": Target(written("t.tsv", _TABLE), _read_table),
    "csv": Target(written("t.csv", 'id,text,pair,label\n1,"a ""b",c,1\n2,d,e,0\n'), _read_table),
    "jsonl": Target(written("t.jsonl", _JSON_LINES), _read_table),
}
