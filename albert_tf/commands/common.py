# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the commands share: models, texts from arguments, files or standard input, and output.

TensorFlow takes seconds to import, and `albert_tf` imports it with the first of its classes: wrong
arguments and --help do not wait for it.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from absl import flags

import albert_tf
from albert_tf.cli.flags import FLAGS, define_path
from albert_tf.errors import AlbertError, printable
from albert_tf.io.text_files import read_lines
from albert_tf.io.text_tables import table_kind
from albert_tf.pretrained.locate import locate
from albert_tf.tasks.tables import TextColumns, read_texts
from albert_tf.weights.run_folder import RunFolder, model_folder


def define_use_flags(content: str) -> None:
    """Defines --input_file, see `define_input_flag`, and --json."""
    define_input_flag(content)
    define_json_flag()


def define_input_flag(content: str) -> None:
    """Defines --input_file; `content` says what the file has."""
    define_path(
        "input_file", None, f"{content} UTF-8, plain or compressed (.gz, .bz2 or .xz). Without it "
        "and without arguments, standard input is read."
    )  # fmt: skip


def define_json_flag() -> None:
    """Defines --json."""
    flags.DEFINE_bool("json", False, "Print one JSON object per line.")


def input_lines(given: Sequence[str]) -> list[str]:
    """Returns the texts given as arguments, or those of --input_file or of standard input.

    Each line is a text, or the column `text` of a table.

    Raises:
      AlbertError: there are both arguments and a file, or there is no text, or it is not UTF-8.
    """
    if given and FLAGS.input_file:
        raise AlbertError("Give TEXT or --input_file, not both.")
    if table := given_table(given):
        lines = [row.text for row in read_texts(table, TextColumns("text"))]
    elif FLAGS.input_file:
        lines = list(read_lines(FLAGS.input_file))
    elif not given and sys.stdin is not None and not sys.stdin.isatty():
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise AlbertError(
                f"Standard input is not UTF-8 ({error}); convert it to UTF-8."
            ) from error
        lines = [line.rstrip("\r\n") for line in io.StringIO(text)]
    else:
        lines = list(given)
    if not lines:
        raise AlbertError(
            "There is no text: give TEXT, --input_file, or text on standard input; see --help."
        )
    return lines


def given_table(given: Sequence[str]) -> str:
    """Returns --input_file if it is a table and there are no arguments, else ""."""
    file = "" if given else FLAGS.input_file or ""
    return file if table_kind(file) else ""


def open_pretrained(path: str) -> albert_tf.PretrainedModel:
    """Opens a model for `embed` or `fill_mask`, which check the weights that they need."""
    _shorten_warnings()
    warnings.filterwarnings("ignore", message=".* was loaded in part")
    return albert_tf.load_pretrained(path, allow_partial=True)


def trained_folder(path: str) -> str:
    """Returns the folder of a fine-tuned model; raises AlbertError if there is none at `path`."""
    _shorten_warnings()
    folder = model_folder(locate(path))
    RunFolder(folder).check_model()
    return folder


def _shorten_warnings() -> None:
    """Prints the library's warnings without the line of code that they come from."""
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"


def print_json(values: dict[str, Any]) -> None:
    """Prints a JSON object on one line."""
    print(json.dumps(values, ensure_ascii=False))


def show(results: Iterable[tuple[dict[str, Any], Iterable[Sequence[str]]]]) -> None:
    """Prints results: with --json the object of each, else a table of the rows of all.

    The last column of the table is not padded.
    """
    if FLAGS.json:
        for values, _ in results:
            print_json(values)
        return
    rows = [[*map(printable, row)] for _, found in results for row in found]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
