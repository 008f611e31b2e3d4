# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cases of parametrized tests."""

from __future__ import annotations

import pytest


def slow(*values: object) -> list:
    """Returns parameter values that only `make test-all` runs."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
