# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The formats that models are converted to; without TensorFlow."""

from __future__ import annotations

from albert_tf.errors import AlbertError

FORMATS = TF2, TF1, HF, TFHUB = ("tf2", "tf1", "hf", "tfhub")
WEIGHTS_DTYPES = FLOAT32, FLOAT16 = ("float32", "float16")


def check_weights_dtype(to: str, weights_dtype: str) -> None:
    """Raises AlbertError if a format does not support a weights' dtype."""
    if weights_dtype != FLOAT32 and to != HF:
        raise AlbertError(f"`weights_dtype`={weights_dtype} is for `to`=hf; {to} has float32 only.")
