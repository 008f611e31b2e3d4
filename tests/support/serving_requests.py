# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's REST bodies, by the rules of its documentation (api_rest.md).

Only what a signature of this project can take and return: strings, integers and floats.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def rest_inputs(
    body: Mapping[str, Any], specs: Mapping[str, tf.TensorSpec]
) -> dict[str, tf.Tensor]:
    """Parses the body of a predict request.

    Args:
      body: the JSON object.
      specs: the inputs of the signature by name.

    Raises:
      ValueError: the server would reject the request.
    """
    (kind,) = set(body) - {"signature_name"}
    values = body[kind]
    if kind == "inputs":
        columns = values if isinstance(values, dict) else {_only(specs): values}
    elif kind == "instances":
        # {"b64": …} is a string.
        if isinstance(values[0], dict) and set(values[0]) != {"b64"}:
            if len({frozenset(row) for row in values}) > 1:
                raise ValueError("the instances have other names")
            columns = {name: [row[name] for row in values] for name in values[0]}
        else:
            columns = {_only(specs): values}
    else:
        raise ValueError(f"there is no {kind!r}")
    if set(columns) != set(specs):
        raise ValueError(f"the inputs are {sorted(specs)}, not {sorted(columns)}")
    return {name: _tensor(columns[name], spec) for name, spec in specs.items()}


def rest_answer(body: Mapping[str, Any], outputs: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    """Returns the body of the answer to a predict request."""
    columns = {name: _json(value.numpy()) for name, value in outputs.items()}
    if "inputs" in body:
        return {"outputs": columns if len(columns) > 1 else next(iter(columns.values()))}
    if len(columns) == 1:
        return {"predictions": next(iter(columns.values()))}
    rows = zip(*columns.values())
    return {"predictions": [dict(zip(columns, row)) for row in rows]}


def _only(specs: Mapping[str, tf.TensorSpec]) -> str:
    if len(specs) != 1:
        raise ValueError(f"the signature has several inputs: {sorted(specs)}")
    return next(iter(specs))


def _tensor(value: Any, spec: tf.TensorSpec) -> tf.Tensor:
    tensor = tf.constant(_checked(value, spec.dtype), spec.dtype)
    if not spec.shape.is_compatible_with(tensor.shape):
        raise ValueError(f"{spec.name} has the shape {tensor.shape}, not {spec.shape}")
    return tensor


def _checked(value: Any, dtype: tf.DType) -> Any:
    """Returns a value with its strings as bytes, if all leaves have the JSON type of `dtype`."""
    if isinstance(value, list):
        return [_checked(entry, dtype) for entry in value]
    if dtype == tf.string and isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    if dtype == tf.string and isinstance(value, str):
        return value.encode()
    if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is not {dtype.name}")


def _json(values: np.ndarray) -> Any:
    """Returns an array as nested lists of JSON values."""
    if values.dtype == object:
        values = np.vectorize(bytes.decode, otypes=[object])(values)
    return values.tolist()
