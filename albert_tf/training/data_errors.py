# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors of a step that damaged records cause, as a sentence that says where they are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from albert_tf.data.context import InputFn
from albert_tf.errors import AlbertError

#: An error of the input pipeline reaches a step through the iterator, which TensorFlow names among
#: the nodes ("[[{{node ParseExample}}]] [[IteratorGetNext]]"). A suffix such as in
#: "[[IteratorGetNext/_4]]" marks a transfer between devices, which fails with any error. The names
#: are lost where the message quotes a record that holds a zero byte.
_OF_THE_INPUT = re.compile(r"IteratorGetNext\w*(\}\})?\]|Could not parse example input")
#: An embedding or a class that does not exist, as operations on a CPU report it.
_OUT_OF_RANGE = re.compile(r"indices\[[\d,]*\] = \S+ is not in \[|Received a label value of \S+")


@contextlib.contextmanager
def data_errors(input_fn: InputFn) -> Iterator[None]:
    """Turns errors that damaged records cause into a sentence that says where they are.

    An error of the input pipeline makes `input_fn.check`, if there is one, look for the damage. An
    error of the model is raised at once.

    Args:
      input_fn: of the batches that the steps within this context run on.

    Raises:
      AlbertError: the input is damaged or gone. Other errors pass.
    """
    try:
        yield
    # TensorFlow may quote a record that is no example; its message then is not UTF-8.
    except UnicodeDecodeError:
        _check(input_fn)
        raise
    except (
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        tf.errors.InvalidArgumentError,
    ) as error:
        if not _OF_THE_INPUT.search(str(error)):
            if _OUT_OF_RANGE.search(str(error)):
                raise AlbertError(
                    f"The records hold an id or a label that the model does not have "
                    f"({_cause(error)}); data_prep/verify_records.py with --vocab_file names them."
                ) from error
            raise
        if not isinstance(error, tf.errors.NotFoundError):  # That one names the file.
            _check(input_fn)
        if isinstance(error, tf.errors.InvalidArgumentError):
            raise  # Not of the records.
        raise AlbertError(
            f"The input records are damaged or gone ({_cause(error)}); "
            "data_prep/verify_records.py names the shard."
        ) from error


def _check(input_fn: InputFn) -> None:
    check = getattr(input_fn, "check", None)
    if check:
        check()


def _cause(error: tf.errors.OpError) -> str:
    """What TensorFlow's message says between the stack trace and the names of nodes."""
    text = re.split(r"\n?\t? ?\[\[| \[Op:", error.message)[0].strip()
    return text.splitlines()[-1] if text else type(error).__name__
