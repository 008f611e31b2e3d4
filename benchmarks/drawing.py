# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""matplotlib, the optional extra `plots`, for the benchmarks that draw."""

from __future__ import annotations

from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files


def load_pyplot() -> Any:
    """The module matplotlib.pyplot, drawing to files.

    Raises:
      AlbertError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise AlbertError(
            f"Plots need matplotlib ({error}); install it with `pip install matplotlib`."
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: str, dpi: int = 100) -> None:
    """Writes a figure as PNG; `path` is complete or untouched afterwards."""
    with files.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=dpi, bbox_inches="tight")
