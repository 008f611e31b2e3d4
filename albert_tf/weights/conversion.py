# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts a pretrained model to another format, and reads the result back.

Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from albert_tf.errors import AlbertError
from albert_tf.io import folders
from albert_tf.io.log import log

if TYPE_CHECKING:
    from albert_tf.weights.load import LoadReport

FORMATS = ("tf2", "tf1", "hf")


def convert(
    from_path: str, to: str, output_dir: str, allow_partial: bool = False, overwrite: bool = False
) -> LoadReport:
    """Writes the model at `from_path` to a new folder, and compares the result bit by bit.

    Args:
      from_path: see albert_tf.weights.load.open_source.
      to: one of FORMATS.
      output_dir: a folder that does not exist yet, or is empty; it appears only when complete.
      allow_partial: see load_pretrained; only the weights of the source are written.
      overwrite: replace a model of the same format in `output_dir`; see folders.new_folder.

    Raises:
      AlbertError: the source cannot be loaded, the format cannot represent the model, or the folder
        is not empty.
    """
    from albert_tf.huggingface.weights import write_hugging_face
    from albert_tf.weights.checkpoint import write_tf1, write_tf2
    from albert_tf.weights.load import open_source
    from albert_tf.weights.pretrained_model import load_pretrained

    write = dict(zip(FORMATS, (write_tf2, write_tf1, write_hugging_face)))[to]
    with folders.new_folder(output_dir, overwrite, from_path) as folder:
        model = load_pretrained(from_path, allow_partial)
        if model.tokenizer is None:
            log.info(
                f"There is no vocabulary beside {from_path}, so the result has none: put it "
                "there and convert again, or give a vocabulary wherever you use the result."
            )
        variables = model.named_weights()
        weights = {name: variables[name].numpy() for name in model.load_report.matched}
        write(folder, model.config, model.tokenizer, weights)
        written = open_source(folder)
        wrong = {*written.shapes} ^ {*weights}
        for name in {*weights} - wrong:
            value, expected = written.read(name), weights[name]
            if value.dtype != expected.dtype or value.tobytes() != expected.tobytes():
                wrong.add(name)
        if wrong:
            raise AlbertError(
                f"The result in {os.path.dirname(folder)} differs from the source in "
                f"{', '.join(sorted(wrong))}; the disk may be full or damaged."
            )
    return model.load_report
