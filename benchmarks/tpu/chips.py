# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The TPUs that programs are compiled for."""

from __future__ import annotations

from typing import NamedTuple

from albert_tf.errors import AlbertError


class Chip(NamedTuple):
    """A kind of TPU.

    Attributes:
      topology: its name for the compiler, of the smallest slice that it describes.
      chip_config: how the cores of a chip are used; "megacore" makes one device of both.
      hbm_gib: memory of one device, in GiB.
      replicas: devices of the machine in `machine`.
      machine: the smallest accelerator type.
    """

    topology: str
    chip_config: str | None
    hbm_gib: int
    replicas: int
    machine: str


#: TensorFlow's runtime does not serve v6e; its row shows what the compiler says.
CHIPS = {
    "v2": Chip("v2:2x2", None, 8, 8, "v2-8"),
    "v3": Chip("v3:2x2", None, 16, 8, "v3-8"),
    "v4": Chip("v4:2x2x1", "megacore", 32, 4, "v4-8"),
    "v5e": Chip("v5e:2x2", None, 16, 4, "v5litepod-4"),
    "v5p": Chip("v5p:2x2x1", None, 95, 4, "v5p-8"),
    "v6e": Chip("v6e:2x2", None, 32, 4, "v6e-4"),
}

#: Slices of one machine with more devices than the smallest one.
_LARGER = {("v5e", 8): "v5e:2x4"}


def topology(chip: str, replicas: int) -> str:
    """Returns the compiler's name of a slice with as many devices.

    Raises:
      AlbertError: no machine with such chips has as many.
    """
    if replicas > CHIPS[chip].replicas and (chip, replicas) not in _LARGER:
        counts = [CHIPS[chip].replicas, *(count for name, count in _LARGER if name == chip)]
        raise AlbertError(
            f"A machine with {chip} has {' or '.join(map(str, counts))} devices here, so a step "
            f"cannot have {replicas} replicas."
        )
    return _LARGER.get((chip, replicas), CHIPS[chip].topology)
