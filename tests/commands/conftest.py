# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs `albert`, and writes small fine-tuned models."""

from __future__ import annotations

import io
import sys
import warnings

import pytest

from albert_tf import __main__ as main
from albert_tf.keras2 import keras
from tests.support.builders import tiny_config, write_tokenizer
from tests.support.small_tasks import WORDS, write_run


@pytest.fixture
def albert(run_script, monkeypatch):
    """Runs `albert` in this process, as `albert(*arguments, stdin=b"…")`."""
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", None)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return run_script(main, *arguments)

    return run


@pytest.fixture
def fine_tuned(tmp_path):
    """Writes the output directory of a task with random weights, as `fine_tuned(class, spec)`."""

    def write(task_class, spec):
        keras.utils.set_random_seed(7)
        tokenizer = write_tokenizer(tmp_path, WORDS)
        task = task_class(tiny_config(tokenizer.vocab_size), tokenizer, spec)
        write_run(task, tmp_path / "run")
        return str(tmp_path / "run")

    return write
