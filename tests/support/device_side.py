# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs commands of benchmarks.gpu_step: those of the device's side with JAX, on the CPU."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
JAX_PYTHON = os.environ.get("JAX_PYTHON", str(ROOT / ".venv-peers/tpu/bin/python"))
needs_jax = pytest.mark.skipif(
    not os.path.exists(JAX_PYTHON),
    reason="There is no environment .venv-peers/tpu with JAX, nor one that JAX_PYTHON names.",
)


def run_with_jax(*arguments, status=0):
    """Runs a command of the device's side; returns what it printed."""
    command = [JAX_PYTHON, "-m", "benchmarks.gpu_step", *arguments, "--device=cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def run_here(*arguments, status=0):
    """Runs a program of this environment; returns what it printed."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr
