# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON that becomes dataclasses, and errors about JSON."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json, joined, parse_json, short_repr


@dataclasses.dataclass(frozen=True)
class Settings:
    steps: int
    name: str | None = None
    rate: float = 0.5
    labels: tuple[str, ...] = ()


def test_json_values_become_a_dataclass():
    assert from_json(Settings, {"steps": 3}, "it") == Settings(3)
    values = {"steps": 3, "name": None, "rate": 1, "labels": ["a"]}
    assert from_json(Settings, values, "it") == Settings(3, None, 1, ["a"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], r"it: a JSON object was expected, not \[\]"),
        ({}, "it: the key 'steps' is missing"),
        ({"steps": 1, "other": 2}, "it: unknown key 'other'; known are steps, name"),
        ({"steps": True}, "'steps' must be of type int, not True"),
        ({"steps": 1.5}, "'steps' must be of type int, not 1.5"),
        ({"steps": 1, "name": 7}, "'name' must be of type str or None, not 7"),
        ({"steps": 1, "rate": "1"}, "'rate' must be of type float, not '1'"),
    ],
)
def test_values_that_do_not_fit_the_dataclass_are_refused(values, message):
    with pytest.raises(AlbertError, match=message):
        from_json(Settings, values, "it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n]', "It is not JSON: Expecting property name .*: line 2 col"),
        (
            '{"a": {"b": 1, "c": 2, "b": 1}}',
            "It is not JSON: an object has the key 'b' more than once",
        ),
        ("[" * 100_000, "It is not JSON: maximum recursion depth exceeded"),
        ("1" * 10_000, "It is not JSON: Exceeds the limit"),
    ],
)
def test_text_that_is_not_json_is_refused_with_the_reason(text, message):
    with pytest.raises(AlbertError, match=message):
        parse_json(text, "It")


def test_long_values_are_cut_in_messages():
    assert short_repr("abc") == "'abc'"
    assert len(short_repr("x" * 5000)) == 60
    assert joined(["a", "b"]) == "a, b" and joined([]) == "none"
    assert len(joined(["x" * 400] * 9)) == 500
