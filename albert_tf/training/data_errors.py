# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns TensorFlow's errors about damaged records into AlbertErrors that name the record."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from albert_tf.data.context import InputFn
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import storage

#: An error of the input pipeline reaches a step through the iterator, and TensorFlow lists it among
#: the nodes ("[[{{node ParseExample}}]] [[IteratorGetNext]]"). A suffix as in
#: "[[IteratorGetNext/_4]]" marks a transfer between devices, which fails with any error. The list
#: of nodes is lost if the message quotes a record that contains a zero byte.
_OF_THE_INPUT = re.compile(r"IteratorGetNext\w*(\}\})?\]|Could not parse example input")
#: A missing embedding or class, as operations on a CPU report it.
_OUT_OF_RANGE = re.compile(r"indices\[[\d,]*\] = \S+ is not in \[|Received a label value of \S+")


@contextlib.contextmanager
def data_errors(input_fn: InputFn) -> Iterator[None]:
    """Turns errors caused by damaged records into AlbertErrors that name the record.

    An error of the input pipeline calls `input_fn.check`, if there is one, to find the damage. An
    error of the model passes at once.

    Args:
      input_fn: yields the batches of the steps within this context.

    Raises:
      StoppedError: the input cannot be read for now.
      AlbertError: it is damaged or gone, or may not be read. Other errors pass.
    """
    check = getattr(input_fn, "check", lambda: None)
    try:
        yield
    # If TensorFlow quotes a record that is no example, the message is not UTF-8.
    except UnicodeDecodeError:
        check()
        raise
    except (
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.InvalidArgumentError,
    ) as error:
        if not _OF_THE_INPUT.search(str(error)):
            if _OUT_OF_RANGE.search(str(error)):
                raise AlbertError(
                    f"The records hold an id or a label that the model does not have "
                    f"({_cause(error)}); run data_prep/verify_records.py with --vocab_file to find "
                    "it."
                ) from error
            raise
        # The others name the file themselves.
        if isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
            check()
        if isinstance(error, tf.errors.InvalidArgumentError):
            raise  # The records are good.
        raise AlbertError(
            f"The input records are damaged, missing or not readable ({_cause(error)}); "
            "run data_prep/verify_records.py to find the shard."
        ) from error
    except tf.errors.OpError as error:
        reason = storage.system_message(str(error))
        if reason is None or not _OF_THE_INPUT.search(str(error)):
            raise
        line = next(line for line in str(error).splitlines() if reason in line)
        raise StoppedError(
            f"The input records cannot be read ({line.strip()[:300]}); mend that, or wait, and run "
            "the same command again."
        ) from error


def _cause(error: tf.errors.OpError) -> str:
    """Extracts the part of a message between the stack trace and the names of nodes."""
    text = re.split(r"\n?\t? ?\[\[| \[Op:", error.message)[0].strip()
    return text.splitlines()[-1] if text else type(error).__name__
