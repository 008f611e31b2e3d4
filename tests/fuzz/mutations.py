# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Damage to valid files, as hypothesis strategies, and what may come of reading them."""

from __future__ import annotations

import contextlib
import copy
import json
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from albert_tf.errors import AlbertError

#: A reader may take so long for a tiny file, and so much more memory than all before it.
SECONDS = 20
MEGABYTES = 300


def examples(count: int) -> settings:
    """Settings for so many examples, the same ones each time."""
    checks = list(HealthCheck)
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=checks,
    )


class HungError(Exception):
    """A reader took too long."""


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise HungError(f"no end after {SECONDS} seconds")

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def survive(read: Callable[[], object]) -> str | None:
    """Reads something that may be damaged: it is read, or refused in one sentence.

    Returns:
      the sentence.

    Raises:
      Exception: whatever else came of it.
    """
    before = _peak_megabytes()
    sentence = None
    with _time_limit(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read()
        except AlbertError as error:
            sentence = str(error)
            assert sentence and len(sentence) < 3000, f"a sentence of {len(sentence)} characters"
            assert sentence.isprintable() or "\n" not in sentence, repr(sentence)
    grown = _peak_megabytes() - before
    assert grown < MEGABYTES, f"{grown:.0f} MB for a tiny file"
    return sentence


_NUMBERS = (0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1)
_INSERTED = (b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\n", b"\r", b"\t", b'"', b"\\", b"[" * 5000)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with a few edits: flips, cuts, insertions, repetitions, huge numbers."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "drop", "repeat", "insert", "bytes", "number"]))
        if kind == "flip" and changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del changed[at:]
        elif kind == "drop":
            del changed[at : at + draw(st.integers(1, 64))]
        elif kind == "repeat":
            changed[at:at] = changed[at : at + draw(st.integers(1, 64))]
        elif kind == "insert":
            changed[at:at] = draw(st.sampled_from(_INSERTED))
        elif kind == "bytes":
            changed[at:at] = draw(st.binary(max_size=16))
        elif kind == "number":
            number = draw(st.sampled_from(_NUMBERS))
            width = draw(st.sampled_from([4, 8]))
            changed[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed)


def _paths(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Places in a JSON value; of long lists only the first and the last entries."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for i in sorted({*range(min(3, len(value))), *range(max(0, len(value) - 1), len(value))}):
            yield from _paths(value[i], (*path, i))


_ODD = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, 2**64, 10**400, -(10**30), 0.5, 1e308,
    float("inf"), float("nan"), "", " ", "a", "x" * 5000, "\0", "\ud800", "\U0001f600", "../x",
    "/etc/passwd", "a/b", [], [[]], [0] * 50, [None], {}, {"a": {}}, {"": 0},
)  # fmt: skip


@st.composite
def odd_json(draw: st.DrawFn, value: Any) -> bytes:
    """JSON text of the value with a few entries of another type, missing, added or too deep."""
    changed = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(_paths(changed))))
        odd = draw(st.sampled_from(_ODD))
        if not path:
            if draw(st.integers(0, 9)) == 0:
                changed = copy.deepcopy(odd)
            continue
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        kind = draw(st.sampled_from(["replace", "replace", "remove", "add", "deep"]))
        if kind == "replace":
            holder[path[-1]] = copy.deepcopy(odd)
        elif kind == "remove":
            del holder[path[-1]]
        elif kind == "add" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["", "x", "\0", "../x"]))] = copy.deepcopy(odd)
        elif kind == "add":
            holder.append(copy.deepcopy(odd))
        elif kind == "deep":
            deep: Any = 0
            for _ in range(300):
                deep = [deep]
            holder[path[-1]] = deep
    return json.dumps(changed).encode()
