# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks TF_CONFIG: the machines that train together, and the place of this process among them."""

from __future__ import annotations

import json
import os

from albert_tf.errors import AlbertError


def check_cluster() -> None:
    """Raises AlbertError unless TF_CONFIG names several workers, and this process is one."""
    try:
        config = json.loads(os.environ.get("TF_CONFIG", ""))
        machines = {k: v for k, v in config["cluster"].items() if k in ("chief", "worker")}
        kind, index = config["task"]["type"], int(config["task"]["index"])
        number_of_kind = len(machines[kind])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise AlbertError(
            "`strategy`=multi_worker needs the environment variable TF_CONFIG with a JSON object "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}.'
        ) from None
    if not 0 <= index < number_of_kind:
        raise AlbertError(
            f"TF_CONFIG says that this is {kind} {index}, but its cluster has {number_of_kind}; "
            "indices start from 0."
        )
    if sum(map(len, machines.values())) < 2:
        raise AlbertError("TF_CONFIG names one worker only; use `strategy`=mirrored or default.")
