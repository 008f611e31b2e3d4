# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's words on damaged input, as a sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from albert_tf.convert.source import first_line
from albert_tf.errors import AlbertError


@contextlib.contextmanager
def data_errors(data_check: Callable[[], None] | None) -> Iterator[None]:
    """Turns TensorFlow's words on damaged input into a sentence that says where it is.

    Args:
      data_check: raises AlbertError for the first damaged record, if there is one; None: nobody
        knows how to look.

    Raises:
      AlbertError: the input is damaged. Other errors pass.
    """
    try:
        yield
    # A record that is no example may be quoted in TensorFlow's message, which then is not UTF-8.
    except (
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        tf.errors.InvalidArgumentError,
        UnicodeDecodeError,
    ) as e:
        if data_check:
            data_check()
        if not isinstance(e, (tf.errors.DataLossError, tf.errors.NotFoundError)):
            raise  # Not of the data.
        raise AlbertError(
            f"The input records are damaged or gone ({first_line(e)}); "
            "data_prep/verify_records.py names the shard."
        ) from e
