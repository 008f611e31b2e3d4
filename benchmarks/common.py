# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: the machine's description, files of results, medians, and plots."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from albert_tf.io import files


def describe_machine() -> dict[str, Any]:
    """The processor's name, its units for short floats, usable cores, memory, and versions."""
    found: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "python": platform.python_version(),
        "tensorflow": metadata.version("tensorflow"),
    }
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            lines = (line.partition(":") for line in f)
            info = {key.strip(): value.strip() for key, _, value in lines}
    except OSError:  # Not Linux.
        return {"processor": platform.machine(), **found}
    known = info.get("flags", "").split()
    units = [unit for unit in ("avx512f", "avx512_bf16", "amx_bf16") if unit in known]
    return {"processor": info.get("model name", platform.machine()), "units": units, **found}


def read_lines(path: str) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object per line; none if there is no such file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def add_lines(path: str, values: Iterable[Mapping[str, Any]]) -> None:
    """Appends objects to a file with one JSON object per line."""
    with open(path, "a", encoding="utf-8") as f:
        f.writelines(f"{json.dumps(value)}\n" for value in values)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def show_spread(values: Mapping[str, float], digits: int = 0, factor: float = 1) -> str:
    """`spread` as text: median (least … most)."""
    middle, least, most = (
        f"{factor * values[key]:,.{digits}f}" for key in ("median", "least", "most")
    )
    return f"{middle} ({least} … {most})"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def load_pyplot() -> Any:
    """matplotlib.pyplot, drawing to files; of the optional extra `plots`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save_figure(figure: Any, path: str) -> None:
    """Writes a figure as PNG; `path` is complete or untouched afterwards."""
    with files.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", bbox_inches="tight")
