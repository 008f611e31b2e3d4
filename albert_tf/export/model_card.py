# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The model card: README.md of an export, made from the files beside the weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf import __version__

CARD_FILE = "README.md"
_TO_BE_FILLED_IN = {
    "To be filled in": "What the model is meant for, what its training text may be used for, and "
    "whom its errors and biases may harm, is recorded nowhere beside the weights; write it here."
}


class Kind(NamedTuple):
    """A kind of export: a title, and Python code that uses it, with {name} for its name."""

    title: str
    example: str


def model_card(kind: Kind, name: str, sections: Mapping[str, Any]) -> str:
    """Returns the card of an export as Markdown.

    Args:
      kind: of the export.
      name: of the export.
      sections: by title, Markdown or a dict of facts, possibly nested; empty ones are left out.
        Without the section "Use" the card asks for it.
    """
    parts = [
        f"# {kind.title}: {name}",
        f"ALBERT (Lan et al., ICLR 2020) for TensorFlow 2, written by albert_tf {__version__}.",
        f"```python\n{kind.example.format(name=name)}\n```",
    ]
    for title, content in {**sections, **({} if "Use" in sections else _TO_BE_FILLED_IN)}.items():
        if isinstance(content, Mapping):
            rows = list(_rows(content))
            content = "\n".join(_table(("", ""), rows)) if rows else ""
        if content:
            parts += [f"## {title}", content]
    return "\n\n".join(parts) + "\n"


def signature_table(signatures: Mapping[str, Any]) -> str:
    """Returns the inputs and outputs of concrete functions by name as a table in Markdown."""
    rows = [
        (f"`{name}`", _specs(_inputs(function)), _specs(function.structured_outputs))
        for name, function in signatures.items()
    ]
    return "\n".join(_table(("signature", "inputs", "outputs"), rows))


def _rows(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields nested values as rows, without empty ones."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{key}: ")
        elif cell := _cell(value):
            yield f"{prefix}{key}", cell


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return " ".join(map(_cell, value.values()))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    text = str(value)
    # Folders of the machine that trained the model are private.
    return os.path.basename(text.rstrip("/")) if os.path.isabs(text) or "://" in text else text


def _inputs(function: Any) -> dict[str, Any]:
    """Returns the specs of a function's arguments by name, positional ones included."""
    positional, by_name = function.structured_input_signature
    return {**{spec.name: spec for spec in positional if hasattr(spec, "dtype")}, **by_name}


def _specs(specs: Mapping[str, Any]) -> str:
    texts = []
    for name, spec in specs.items():
        sizes = ", ".join("?" if n is None else str(n) for n in spec.shape)
        texts.append(f"`{name}` {spec.dtype.name} [{sizes}]")
    return ", ".join(texts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table in Markdown; `head` has the titles of the columns."""
    for line in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
