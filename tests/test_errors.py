# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""No name from a file steers the terminal that an error is printed on."""

import pytest

from albert_tf.errors import AlbertError, DamagedError, printable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\x1b[2Ja", r"\x1b[2Ja"),
        ("a\r\nerror: b", r"a\r\nerror: b"),
        ("a\u202eb", r"a\u202eb"),
        ("a\ud800b", r"a\ud800b"),
        ("é 漢\u3000字 😀 \\x1b", "é 漢\u3000字 😀 \\x1b"),
    ],
)
def test_control_characters_in_errors_are_escaped(name, shown):
    assert printable(name) == shown
    for kind in (AlbertError, DamagedError):
        assert str(kind(f"The weight {name} is missing.")) == f"The weight {shown} is missing."
    assert str(AlbertError()) == ""
