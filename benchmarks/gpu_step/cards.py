# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Peak rates of GPUs for dense bf16 matrix products, by their makers' data sheets."""

from __future__ import annotations

#: TFLOP/s by a part of the device's name; the first that fits counts.
BF16_TFLOPS = {
    "B200": 2250,
    "GH200": 989,
    "H200": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "H100": 989,
    "L40S": 362,
    "A100": 312,
    "A10G": 70,
    "L4": 121,
    "A10": 125,
}


def peak_flops(device_kind: str) -> float | None:
    """Returns a card's operations a second; None for a card that is not in the table."""
    for name, tflops in BF16_TFLOPS.items():
        if name in device_kind:
            return 1e12 * tflops
    return None
