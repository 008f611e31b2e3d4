# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of neighbouring folders."""

from tests.pretrained.conftest import server
from tests.tokenization.conftest import small_model, wordpiece
from tests.weights.conftest import grouped, hf_tiny, released_model

__all__ = ["grouped", "hf_tiny", "released_model", "server", "small_model", "wordpiece"]
