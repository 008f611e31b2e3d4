# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The installed set of versions reads what the other one writes; see tests.version_sets."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import version_sets as sets

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the other set of versions writes; tests must not change it."""
    folder = tmp_path_factory.mktemp("other_set")
    newer = tf.__version__.startswith("2.15.")
    check = f"import tensorflow as tf; assert tf.__version__.startswith('2.15.') != {newer}"
    for python in sorted(ROOT.glob(".venv*/bin/python")):
        if not subprocess.run([python, "-c", check], capture_output=True).returncode:
            command = [python, "-m", "tests.version_sets", folder]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return folder
    pytest.skip("There is no environment with the other set of versions beside the checkout.")


def assert_close(arrays, expected_path):
    expected = np.load(expected_path)
    assert set(arrays) == set(expected.files)
    for name in expected.files:
        np.testing.assert_allclose(arrays[name], expected[name], rtol=0, atol=1e-5, err_msg=name)


def test_a_resumed_run_ends_as_the_uninterrupted_one(folder, tmp_path, capsys):
    shutil.copytree(folder / "run", tmp_path / "run")
    weights = sets.train(folder / "records/compact", tmp_path / "run")
    printed = capsys.readouterr().out
    assert f"Resuming {tmp_path / 'run'} at step {sets.STOP}." in printed
    # Rounding causes differences up to 1e-6 in weights up to 1.
    assert_close(weights, folder / "run_end.npz")
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    steps = [entry["step"] for entry in map(json.loads, lines) if "gradient_norm" in entry]
    assert steps == list(range(1, sets.STEPS + 1))


@pytest.mark.parametrize("record_format", ["masked", "compact"])
def test_records_are_the_same_bytes(record_format, folder, tmp_path):
    expected = folder / "records" / record_format
    sets.build_records(str(expected / "small.model"), tmp_path, record_format)
    shards = [path.name for path in expected.glob("*.tfrecord")]
    assert len(shards) == 2
    for name in [*shards, "tokenizer.json"]:
        assert (tmp_path / name).read_bytes() == (expected / name).read_bytes()
    manifests = [json.loads((f / "manifest.json").read_text()) for f in (expected, tmp_path)]
    for manifest in manifests:
        for file in manifest["options"]["input_files"]:
            file.pop("modified_nanoseconds")
    assert manifests[0] == manifests[1]


def test_exports_have_the_same_outputs_as_with_the_set_that_wrote_them(folder):
    assert_close(sets.outputs(folder), folder / "expected.npz")
