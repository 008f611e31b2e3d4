# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Replaces the names of settings in the library's errors by the flags of the running script.

The library does not know the flags: its errors name a function's argument in backticks, such as
`max_steps`. A script prints --num_train_steps instead.
"""

from __future__ import annotations

import re

from absl import flags

FLAGS = flags.FLAGS
#: Settings with another name as a flag; the script defines one of the names listed.
_OTHER_NAMES = {
    "max_steps": ("num_train_steps", "train_step"),
    "num_warmup_steps": ("num_warmup_steps", "warmup_step"),
    "seed": ("random_seed",),
    "frozen": ("freeze",),
    "dropout_rate": ("classifier_dropout",),
}
_SETTING = re.compile(r"`(\w+)`")


def name_flags(text: str) -> str:
    """Returns a text with this script's flags in place of `settings` in backticks."""
    return _SETTING.sub(lambda match: _flag(match[1]), text)


def _flag(setting: str) -> str:
    """Returns the flag of a setting, with dashes, or the setting's name if it has no flag."""
    names = _OTHER_NAMES.get(setting, (setting,))
    return next((f"--{name}" for name in names if name in FLAGS), setting)
