# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""albert_tf.settings: the checks of values, and the flags made of settings."""

from __future__ import annotations

import dataclasses
import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from albert_tf.cli.flags import define_settings, given_settings, name_flags
from albert_tf.data_prep.train_sentencepiece import VocabularySettings
from albert_tf.errors import AlbertError
from albert_tf.settings import ABOVE_0, Settings, setting, with_default
from tests.support.script_flags import parsed_flags


@dataclasses.dataclass(frozen=True)
class Options(Settings):
    size: int = setting(3, "A size.", minimum=1, maximum=9, source="Lan et al., 2020")
    rate: float = setting(0.5, "A rate.", minimum=ABOVE_0)
    share: float | None = setting(None, "A share.", maximum=1)
    kind: bool | str = setting("auto", "A kind.", choices=("auto", True, False), flag="sort")
    folder: str | None = setting(None, "A folder.", path=True)
    quiet: bool = setting(False, "Silence.")
    inner: int = setting(0, "No flag.", flag=None)


@dataclasses.dataclass(frozen=True)
class MoreOptions(Options):
    size: int = with_default(Options, "size", 5, "Larger here.")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("size", 0, "must be an integer from 1 to 9."),
        ("size", True, "must be an integer from 1 to 9."),
        ("size", "3", "must be an integer from 1 to 9."),
        ("size", None, "must be an integer from 1 to 9."),
        ("inner", 2**31, "must be an integer from 0 to 2147483647."),
        ("rate", 0.0, "must be a number above 0 that float32 can hold."),
        ("rate", math.nan, "must be a number above 0 that float32 can hold."),
        ("rate", 1e39, "must be a number above 0 that float32 can hold."),
        ("share", 1.5, "must be a number from 0 to 1."),
        ("kind", "best", "is unknown; use one of auto, True, False."),
        ("kind", 1, "is unknown; use one of auto, True, False."),
        ("quiet", 1, "must be of type bool."),
        ("rate", True, "must be a number above 0 that float32 can hold."),
        ("size", 3.5, "must be an integer from 1 to 9."),
        ("folder", 3, "must be of type str."),
    ],
)
def test_impossible_values_are_refused(name, value, problem):
    with pytest.raises(AlbertError, match=re.escape(f"`{name}`={value!r} {problem}")):
        Options(**{name: value})


@pytest.mark.parametrize("size", [np.int64(4), np.float32(4), 4.0, np.array(4), Decimal(4)])
@pytest.mark.parametrize("rate", [np.float32(1e-3), Decimal("0.001"), Fraction(1, 1000)])
def test_what_means_a_number_a_truth_or_a_path_is_converted(size, rate, tmp_path):
    options = Options(size=size, rate=rate, folder=tmp_path, quiet=np.bool_(True), share=1)
    expected = {"size": 4, "rate": 0.001, "folder": str(tmp_path), "quiet": True, "share": 1.0}
    for name, value in expected.items():
        found = getattr(options, name)
        assert (found, type(found)) == (value, type(value)), name


def test_flags_of_settings_give_only_what_was_given(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    arguments = ("--size=0", "--sort=true", "--folder=~/x", "--quiet")
    with parsed_flags(lambda: define_settings(MoreOptions), *arguments):
        given = given_settings(MoreOptions)
        assert name_flags("`size`, `inner`, `do_eval`") == "--size, inner, --do_eval"
    assert given == {"size": 0, "kind": True, "folder": "/home/me/x", "quiet": True}
    with parsed_flags(lambda: define_settings(VocabularySettings)):
        assert name_flags("`lower_case`") == "--do_lower_case"
    with parsed_flags(lambda: define_settings(MoreOptions, without=["rate"])):
        assert given_settings(MoreOptions) == {}
