# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Whatever call of the file system fails, nothing that was trained is lost.

A program whose calls fail ends well, or with one sentence. The same command then ends like an
uninterrupted run, bit for bit, and no file was taken for damaged.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import re
import shutil
import signal

import pytest

from tests.faults.configurations import CONFIGURATIONS, write_data
from tests.faults.failing_calls import ERRORS, HURRIED, server_with_failing_calls
from tests.faults.kills import Configuration
from tests.faults.same import compare
from tests.training.damage import files_below

FOREVER = 10**9
pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with server_with_failing_calls(tmp_path_factory.mktemp("library")) as server:
        yield server


def trained(folder):
    """The files of complete checkpoints, of best weights and of their record, by path."""
    below = files_below(folder) if folder.exists() else {}
    checkpoint = re.compile(r"(.*(?:checkpoints|best)/ckpt-\d+)\.(?:index|data-00000-of-00001)")
    found = {}
    for name, content in below.items():
        match = checkpoint.fullmatch(name)
        complete = match and f"{match.group(1)}.index" in below
        if complete or "damaged" in name or name.endswith("best/best.json"):
            found[name] = content
    return found


def assert_nothing_is_lost(before, after):
    assert not [name for name in after if "damaged" in name]
    for name, content in before.items():
        if name.endswith("best.json") and after.get(name) != content:
            assert json.loads(after[name])["value"] > json.loads(content)["value"]
        elif name.startswith("best") and name not in after:
            assert after["best/best.json"] != before["best/best.json"]
        elif name not in after:  # A newer checkpoint took its place.
            newer = [
                other for other in after if other.endswith(".index") and step(other) > step(name)
            ]
            assert len(newer) >= 2
        elif ".json" not in name:
            assert after[name] == content


def step(name):
    return int(name.rpartition("ckpt-")[2].partition(".")[0])


class Attempts:
    """Runs a command whose calls fail, and looks at what it leaves.

    `statuses` are all exit statuses so far, `calls` is the number of calls of the last run.
    """

    def __init__(self, server, data, folder, configuration):
        self._server, self._calls = server
        self._data, self._folder, self._configuration = data, folder, configuration
        self.statuses, self.calls = [], 0
        self.reference = folder / "whole"

    def run(self, output, first=0, number=0, error=0, killed_after=None):
        log, configuration = self._folder / "log", self._configuration
        before = trained(output)
        self._calls.set(output, first, number, error)
        arguments = [configuration.script, *configuration.arguments(self._data, output)]
        log.unlink(missing_ok=True)
        with self._server.running(HURRIED, arguments, log, cpus=configuration.cpus) as group:
            status = self._server.status(killed_after or 300)
            if status is None:
                os.killpg(group, signal.SIGKILL)
                status = self._server.status(60)
        self.calls = self._calls.count
        self._calls.set(output)
        text = log.read_text()
        assert "Traceback" not in text, text
        # TensorFlow's reader itself crashes on some errors; nothing is being written then.
        crashed = status == -signal.SIGSEGV and "in NewCheckpointReader" in text
        ended = status == 0 or (status == 1 and "\nerror: " in f"\n{text}")
        assert ended or killed_after or crashed, text
        assert_nothing_is_lost(before, trained(output))
        self.statuses.append(status)
        return status

    def run_reference(self):
        """Runs without failing calls, and returns the number of calls."""
        assert self.run(self.reference) == 0
        return self.calls

    def assert_the_end_is_the_same(self, output):
        assert self.run(output) == 0
        assert not compare(self.reference, output).differences


def fail_at(attempts, firsts, folder):
    """Lets the calls with these numbers fail, once, for a while, and until the end."""
    errors = itertools.cycle(ERRORS)
    for first, number in zip(firsts, itertools.cycle([FOREVER, 1, 3])):
        output = folder / f"at-{first}"
        attempts.run(output, first, number, next(errors))
        attempts.assert_the_end_is_the_same(output)
        shutil.rmtree(output)


@pytest.mark.parametrize("name", ["loops of steps"])
def test_no_failing_call_loses_what_was_trained(server, data, tmp_path, name):
    attempts = Attempts(server, data, tmp_path, CONFIGURATIONS[name])
    calls = attempts.run_reference()
    fail_at(attempts, range(calls // 3, calls, calls // 3), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["loops of steps", "evaluation", "classifier", "classifier, seeds"]
)
def test_failing_calls_all_over_a_run_lose_nothing(server, data, tmp_path, name):
    attempts = Attempts(server, data, tmp_path, CONFIGURATIONS[name])
    calls = attempts.run_reference()
    fail_at(attempts, range(1, calls, max(1, calls // 40)), tmp_path)
    print(f"{name}: {calls} calls; exit statuses {attempts.statuses}")


@pytest.mark.slow
def test_kills_with_failing_calls_between_them_lose_nothing(server, data, tmp_path):
    rng, kills = random.Random(0), 0
    attempts = Attempts(server, data, tmp_path, CONFIGURATIONS["evaluation"])
    calls = attempts.run_reference()
    for number in itertools.count():
        output = tmp_path / f"run-{number}"
        for _ in range(20):
            first = rng.randint(1, calls)
            length, error = rng.choice([1, 1, 3, FOREVER]), rng.choice(ERRORS)
            status = attempts.run(output, first, length, error, killed_after=rng.uniform(2, 8))
            kills += status == -signal.SIGKILL
            if status == 0 and not any(attempts.statuses[-3:]):
                break
        attempts.assert_the_end_is_the_same(output)
        shutil.rmtree(output)
        if kills >= 200:
            break
    print(f"{kills} kills in {number + 1} runs; {len(attempts.statuses)} attempts")


@pytest.mark.slow
def test_failing_calls_during_a_conversion_leave_the_model_and_the_old_result(
    server, data, tmp_path
):
    both = tmp_path / "both"
    assert Attempts(server, data, tmp_path, CONFIGURATIONS["loops of steps"]).run(both) == 0

    def convert(_, output):
        paths = [f"--from_path={output}", f"--output_dir={output / 'tf2'}"]
        return [*paths, "--to=tf2", "--overwrite"]

    model = files_below(both)
    attempts = Attempts(server, data, tmp_path, Configuration("", "convert_checkpoint", convert))
    assert attempts.run(both) == 0
    calls, expected = attempts.calls, files_below(both)
    assert {*model} < {*expected}
    for first, length in zip(range(1, calls, 3), itertools.cycle([FOREVER, 1, 3])):
        attempts.run(both, first, length, ERRORS[first % len(ERRORS)])
        left = files_below(both)
        assert {name: left.get(name) for name in model} == model
        results = [path for path in both.iterdir() if path.name.startswith("tf2")]
        new = files_below(both / "tf2")
        assert any(files_below(result) == new for result in results)
        for path in results:  # What a program that could not delete has left is complete or named.
            if path.name != "tf2":
                shutil.rmtree(path)
        if not (both / "tf2").exists():
            assert attempts.run(both) == 0
    assert files_below(both) == expected


@pytest.mark.slow
def test_no_failing_call_makes_other_weights_answer(server, data, tmp_path):
    output = tmp_path / "run"
    classifier = CONFIGURATIONS["classifier"]
    assert Attempts(server, data, tmp_path, classifier).run(output) == 0
    expected = (output / "predictions.tsv").read_bytes()

    def predict(data, output):
        left_out = "do_train do_eval train eval_f eval_e learning warmup save keep log steps early"
        left_out = tuple(f"--{x}" for x in f"{left_out} albert vocab".split())
        arguments = classifier.arguments(data, output)
        return ["--nodo_train", *(x for x in arguments if not x.startswith(left_out))]

    attempts = Attempts(
        server, data, tmp_path, dataclasses.replace(classifier, name="", arguments=predict)
    )
    assert attempts.run(output) == 0
    for first, length in zip(range(1, attempts.calls), itertools.cycle([FOREVER, 1, 3])):
        (output / "predictions.tsv").unlink(missing_ok=True)
        status = attempts.run(output, first, length, ERRORS[first % len(ERRORS)])
        if status == 0:
            assert (output / "predictions.tsv").read_bytes() == expected
