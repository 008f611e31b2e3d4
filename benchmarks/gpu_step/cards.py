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


#: Facts of a card that XLA's compiler asks for, by the names of its GpuDeviceInfoProto.
_HOPPER = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 48 << 10,
    "shared_memory_per_block_optin": 227 << 10,
    "shared_memory_per_core": 228 << 10,
    "threads_per_core_limit": 2048,
    "core_count": 132,
    "fpus_per_core": 128,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 2**16 - 1,
    "block_dim_limit_z": 2**16 - 1,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "l2_cache_size": 50 << 20,
    "clock_rate_ghz": 1.98,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "driver_version": "13.0.0",
    "runtime_version": "13.0.0",
    "compile_time_toolkit_version": "13.0.0",
    "dnn_version": "9.10.0",
    "device_vendor": "NVIDIA Corporation",
}
#: The cards that `compile` knows.
CARDS = {
    "h100": {
        **_HOPPER,
        "name": "NVIDIA H100 80GB HBM3",
        "device_memory_size": 79 << 30,
        "memory_bandwidth": 3_352_000_000_000,
    },
    "h200": {
        **_HOPPER,
        "name": "NVIDIA H200",
        "device_memory_size": 140 << 30,
        "memory_bandwidth": 4_800_000_000_000,
    },
}


def target_config(card: str) -> str:
    """Returns one of CARDS as XLA's GpuTargetConfigProto, in text form."""
    facts = CARDS[card]
    lines = [
        f'  {name}: "{value}"' if isinstance(value, str) else f"  {name}: {value}"
        for name, value in facts.items()
    ]
    major, minor, patch = facts["dnn_version"].split(".")
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            "  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }",
            "}",
            'platform_name: "CUDA"',
            f"dnn_version_info {{ major: {major} minor: {minor} patch: {patch} }}",
            f'device_description_str: "{facts["name"]}"',
            "",
        ]
    )
