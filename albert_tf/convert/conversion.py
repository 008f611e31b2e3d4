# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion: a pretrained model of any origin, written in another format and read back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Callable

import numpy as np

from albert_tf import files
from albert_tf.config import AlbertConfig
from albert_tf.convert.checkpoint import write_tf1, write_tf2
from albert_tf.convert.huggingface import write_hugging_face
from albert_tf.convert.load import load_pretrained, open_source
from albert_tf.convert.source import LoadReport
from albert_tf.errors import AlbertError
from albert_tf.export.encoder import write_hub_encoder
from albert_tf.tokenization import Tokenizer

Writer = Callable[[str, AlbertConfig, "Tokenizer | None", Mapping[str, np.ndarray]], None]

#: What writes each format.
WRITERS: dict[str, Writer] = {
    "tf2": write_tf2,
    "tf1": write_tf1,
    "hf": write_hugging_face,
    "tfhub": write_hub_encoder,
}


def convert(from_path: str, to: str, output_dir: str, allow_partial: bool = False) -> LoadReport:
    """Writes the model at `from_path` into a new folder, and compares bit by bit what it wrote.

    Args:
      from_path: see albert_tf.convert.load.open_source.
      to: one of WRITERS.
      output_dir: a folder that does not exist yet, or is empty; it appears only when complete.
      allow_partial: see load_pretrained; only weights that were there are written.

    Raises:
      AlbertError: the source cannot be loaded, the format has no such model, or there is something
        in the folder.
    """
    with files.new_folder(output_dir) as folder:
        model = load_pretrained(from_path, allow_partial)
        variables = model.named_weights()
        weights = {name: variables[name].numpy() for name in model.load_report.matched}
        WRITERS[to](folder, model.config, model.tokenizer, weights)
        _compare(folder, weights)
    return model.load_report


def _compare(folder: str, weights: Mapping[str, np.ndarray]) -> None:
    written = open_source(folder)
    odd = set(written.shapes) ^ set(weights)
    odd.update(
        name
        for name in set(weights) - odd
        if written.read(name).tobytes() != weights[name].tobytes()
    )
    if odd:
        raise AlbertError(
            f"What was written to {os.path.dirname(folder)} reads back differently in "
            f"{', '.join(sorted(odd))}; the disk may be full or damaged."
        )
