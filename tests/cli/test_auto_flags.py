# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from absl import flags

from albert_tf.cli.auto_flags import define_auto
from tests.support.script_flags import temporary_flags


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ([], "auto"),
        (["--fast"], True),
        (["--nofast"], False),
        (["--fast=auto"], "auto"),
        (["--fast=true"], True),
        (["--fast=False"], False),
        (["--fast=0"], False),
    ],
)
def test_a_flag_may_be_true_false_or_auto(given, value):
    with temporary_flags():
        define_auto("fast", "Be fast.")
        assert flags.FLAGS["fast"].default_as_str == "'auto'"
        assert flags.FLAGS(["script", *given, "left"]) == ["script", "left"]
        assert flags.FLAGS.fast is value or flags.FLAGS.fast == value == "auto"


def test_other_values_are_refused():
    with temporary_flags():
        define_auto("fast", "Be fast.")
        with pytest.raises(flags.Error, match="--fast=maybe: give true, false or auto"):
            flags.FLAGS(["script", "--fast=maybe"])
