# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports that compute in another precision than float32, and are compared with float32."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from albert_tf.export.publish import Export
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.training.specs import BFLOAT16, FLOAT32

#: Precisions of SavedModels. float16 would need a GPU and care with large values.
PRECISIONS = (FLOAT32, BFLOAT16)
#: Largest difference from float32, see `self_check`: about ten times what was measured.
_TOLERANCE = 0.25


def export_in(
    precision: str,
    model: AlbertModel,
    build: Callable[[str], AlbertModel],
    export: Callable[[AlbertModel], Export],
) -> Export:
    """Returns the export of a model, in a precision.

    Args:
      precision: one of PRECISIONS.
      model: in float32, with its weights.
      build: builds another such model, in a precision.
      export: builds the export of a model.
    """
    exact = export(model)
    if precision == FLOAT32:
        return exact
    rounded = build(precision)
    weights = model.named_weights()
    for name, variable in rounded.named_weights().items():
        variable.assign(tf.cast(weights[name], variable.dtype))
    return dataclasses.replace(
        export(rounded), probes=exact.probes, tolerance=_TOLERANCE, precision=precision
    )
