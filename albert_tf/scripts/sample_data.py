# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a small data set to try the other commands with: sentences of six
authors, 360 in train.tsv and 480 in dev.tsv.

  albert sample-data --output_dir=authors

The columns are sentence and author.
"""

from __future__ import annotations

import os

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_overwrite_flag, define_path
from albert_tf.io import files

_DATA = os.path.join(os.path.dirname(os.path.dirname(__file__)), "sample_data")


def define_flags() -> None:
    """Defines the flags of this script."""
    define_path("output_dir", "authors", "Folder for the two files.")
    define_overwrite_flag()


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    folder = FLAGS.output_dir
    paths = {name: os.path.join(folder, name) for name in ("train.tsv", "dev.tsv")}
    for path in paths.values():
        files.check_output(path, overwrite=FLAGS.overwrite)
    for name, path in paths.items():
        files.write_bytes(path, files.read_bytes(os.path.join(_DATA, name)))
    print(
        f"Written to {folder}. Train a classifier on them:\n"
        f"  albert classify --do_train --do_eval --train_file={folder}/train.tsv \\\n"
        f"    --eval_file={folder}/dev.tsv --text_column=sentence --label_column=author \\\n"
        f"    --max_seq_length=80 --output_dir={folder}-model"
    )
