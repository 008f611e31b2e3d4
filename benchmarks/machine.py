# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a benchmark's figures depend on: the processor and the versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata


def describe() -> dict[str, object]:
    """The processor's name, its units for short floats, usable cores, memory, and versions."""
    found: dict[str, object] = {
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


def cores(found: Mapping[str, object]) -> str:
    """How many cores `describe` found, in words."""
    return f"{found['cores']} core{'s' * (found['cores'] != 1)}"
