# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits text into documents to train on and documents that are held out."""

from __future__ import annotations

import os
from collections.abc import Iterator

from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.text_files import new_text_file, read_lines

FLAGS = flags.FLAGS
TRAIN_FILE, HELD_OUT_FILE = "train.txt", "heldout.txt"


def define_flags() -> None:
    """Flags of `corpus`."""
    define_path(
        "input_file", None, "Text: a comma list of files and globs; UTF-8, plain or compressed; "
        "one sentence per line, a blank line between documents.", required=True
    )  # fmt: skip
    define_path("output_dir", None, f"Folder for {TRAIN_FILE} and {HELD_OUT_FILE}.", required=True)
    flags.DEFINE_integer("heldout_every", 40, "One document in this many is held out.", 2)
    flags.DEFINE_float(
        "megabytes", None, "Stop after the document with which so many million bytes of text have "
        "been read. Default: read all.", 0.0
    )  # fmt: skip


def documents(path: str) -> Iterator[list[str]]:
    """The documents of a file: lists of at least one line, none of them blank."""
    document: list[str] = []
    for line in read_lines(path):
        if line.strip():
            document.append(line)
        elif document:
            yield document
            document = []
    if document:
        yield document


def split(
    patterns: str, output_dir: str, heldout_every: int = 40, megabytes: float | None = None
) -> tuple[int, int]:
    """Writes train.txt and heldout.txt; returns the numbers of documents in them.

    Document n, from 0, is held out if n % heldout_every == heldout_every - 1, so the first part of
    a text is split as all of it is. Either both files are there afterwards or neither has changed.

    Raises:
      AlbertError: a file is missing or damaged, or no document would be held out.
    """
    paths = files.expand_globs(patterns, "text file")
    counts = [0, 0]
    left = float("inf") if megabytes is None else megabytes * 1e6
    train_path, held_out_path = (os.path.join(output_dir, f) for f in (TRAIN_FILE, HELD_OUT_FILE))
    with new_text_file(train_path) as train, new_text_file(held_out_path) as held_out:
        for document in (found for path in paths for found in documents(path)):
            text = "\n".join(document) + "\n\n"
            part = int(sum(counts) % heldout_every == heldout_every - 1)
            (train, held_out)[part](text)
            counts[part] += 1
            left -= len(text.encode("utf-8"))
            if left <= 0:
                break
        if not counts[1]:
            raise AlbertError(
                f"{patterns} has only {counts[0]} documents to read, so that none is held out; "
                "separate documents by blank lines, read more of it, or hold out more often."
            )
    return counts[0], counts[1]


def main() -> None:
    """Runs the command."""
    train, held_out = split(
        FLAGS.input_file, FLAGS.output_dir, FLAGS.heldout_every, FLAGS.megabytes
    )
    print(
        f"{train:,} documents are in {FLAGS.output_dir}/{TRAIN_FILE}, {held_out:,} in "
        f"{FLAGS.output_dir}/{HELD_OUT_FILE}."
    )
