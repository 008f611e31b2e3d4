# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Extension of Griffe, which reads docstrings for the site: examples in them are code."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

#: The section "Example:" of a docstring; its lines are indented.
_EXAMPLE = re.compile(r"^Example:\n((?:(?: +.*)?(?:\n|$))+)", flags=re.M)


class Examples(griffe.Extension):
    """Marks examples as Python code; otherwise they are shown as running text."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Changes the docstring of a class or function, before it is parsed."""
        del kwargs
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(as_code, obj.docstring.value)


def as_code(match: re.Match[str]) -> str:
    """Returns an example as a paragraph and a fenced block of code."""
    code = textwrap.dedent(match[1]).strip()
    return f"**Example:**\n\n```python\n{code}\n```\n\n"
