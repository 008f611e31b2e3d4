# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns the names of settings in an error of the library into the flags of the script.

The library does not know the flags: its errors name an argument as the caller of a function does,
in backticks (`max_steps`). Who runs a script reads --num_train_steps.
"""

from __future__ import annotations

import re

from absl import flags

FLAGS = flags.FLAGS
#: Settings whose flag has another name; which one depends on the script.
_OTHER_NAMES = {
    "max_steps": ("num_train_steps", "train_step"),
    "num_warmup_steps": ("num_warmup_steps", "warmup_step"),
    "seed": ("random_seed",),
    "frozen": ("freeze",),
    "dropout_rate": ("classifier_dropout",),
}
_SETTING = re.compile(r"`(\w+)`")


def name_flags(text: str) -> str:
    """Returns a text with the flags of this script in place of `settings` in backticks."""
    return _SETTING.sub(lambda match: _flag(match[1]), text)


def _flag(setting: str) -> str:
    """The flag of a setting, with its dashes; the setting's name if it has none."""
    names = _OTHER_NAMES.get(setting, (setting,))
    return next((f"--{name}" for name in names if name in FLAGS), setting)
