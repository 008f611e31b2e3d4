# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Computes a vector for each text.

  albert embed albert_tiny_books "The whale swam." "She wore a white dress."
  albert embed runs/base --input_file=texts.txt --output_file=vectors.npy
  zcat texts.txt.gz | albert embed albert/albert-base-v2 > vectors.jsonl

MODEL is an output directory of a run, a release, a Hugging Face folder, or a
name to download. TEXT can be given several times; without TEXT, each line of
--input_file or of standard input is a text. Of a table, such as a .csv file,
the texts are the column `text`. The vectors are printed as JSON, one text per
line, or written to --output_file, float32 [texts, size], for `numpy.load`. In
Python: `albert_tf.TextEmbedder.load(MODEL).embed(texts)`, and for pretrained
models `albert_tf.load_pretrained(MODEL).embed(texts)`.
"""

from __future__ import annotations

import numpy as np

import albert_tf
from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_overwrite_flag, define_path
from albert_tf.commands.common import (
    define_input_flag,
    input_lines,
    open_pretrained,
    print_json,
    trained_folder,
)
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained.locate import locate
from albert_tf.weights.run_folder import find_task, model_folder


def define_flags() -> None:
    """Defines the flags of this command."""
    define_input_flag("File with one text per line, or a table with a column `text`.")
    define_path("output_file", None, "Write the vectors to this .npy file.")
    define_overwrite_flag()


@script.command(define_flags, "MODEL", "[TEXT…]")
def main(path: str, *given: str) -> None:
    """Runs the command."""
    texts, output = input_lines(given), FLAGS.output_file
    if output and not output.endswith(".npy"):
        raise AlbertError(f"The name {output} must end in .npy; this format is written.")
    if find_task(model_folder(locate(path))).get("task") == "embedding":
        model = albert_tf.TextEmbedder.load(trained_folder(path))
    else:
        model = open_pretrained(path)
    if not output:
        for text, vector in zip(texts, model.embed(texts)):
            # The shortest number with the same float32 value.
            print_json({"text": text, "vector": [float(str(number)) for number in vector]})
        return
    inputs = [FLAGS.input_file] if FLAGS.input_file else []
    with files.new_file(output, inputs, FLAGS.overwrite) as temporary:
        vectors = model.embed(texts)
        with files.gfile().GFile(temporary, "wb") as file:
            np.save(file, vectors)
    print(f"{output}: {len(vectors):,} vectors of {vectors.shape[1]:,} numbers.")
