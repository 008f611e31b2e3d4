# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs whose folders were damaged while they were interrupted."""

from __future__ import annotations

import json
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import EvalSpec
from albert_tf.errors import AlbertError
from albert_tf.training.run import TrainingRun
from tests.faults.same import CLOCK
from tests.training.conftest import HEADS_ALONE
from tests.training.damage import DAMAGE, files_below, flip, stored
from tests.training.runs import fail, interrupted_at, saved_steps

STEPS = 8
NEWEST = "checkpoints/ckpt-6"
FILES = [f"{NEWEST}.index", f"{NEWEST}.data-00000-of-00001"]


@pytest.fixture(scope="module")
def new_run(make):
    """Makes a run with a checkpoint every third step and an evaluation every second."""

    def new_run(folder):
        values = {"eval_batch_size": 16, "save_checkpoints_steps": 3, "log_every_steps": 1}
        estimator, spec, source = make(folder, steps=STEPS, **HEADS_ALONE, **values)
        return estimator, spec, EvalSpec(source.eval_input_fn, max_steps=2, every_steps=2)

    return new_run


@pytest.fixture(scope="module")
def train(new_run):
    def train(folder):
        estimator, spec, held_out = new_run(folder)
        estimator.train_and_evaluate(spec, held_out)
        return estimator, held_out

    return train


def end(folder):
    """The results of a run, except for times."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    curve = [{k: v for k, v in x.items() if k not in CLOCK} for x in lines]
    best = (folder / "best/best.json").read_text()
    weights = stored(folder / "best" / json.loads(best)["checkpoint"])
    return stored(folder / f"checkpoints/ckpt-{STEPS}"), curve, best, weights


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, train):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(folder)
    return end(folder)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, new_run):
    folder = tmp_path_factory.mktemp("interrupted")
    estimator, spec, held_out = new_run(folder)
    with pytest.raises(tf.errors.OpError):
        estimator.train_and_evaluate(interrupted_at(spec, STEPS - 1, fail), held_out)
    assert saved_steps(folder) == [3, 6]
    return folder


@pytest.fixture
def folder(interrupted, tmp_path):
    return shutil.copytree(interrupted, tmp_path / "run")


@pytest.mark.parametrize("kind", DAMAGE)
def test_without_its_configuration_no_run_is_resumed(folder, train, kind):
    path = folder / "run_config.json"
    if kind == "a bit flipped":  # In what says whose run it is, not in the description of the data.
        flip(path, path.read_bytes().index(b'"run"') + 2)
    else:
        DAMAGE[kind](path)
    before = files_below(folder)
    with pytest.raises(AlbertError, match=r"run_config.json|holds another run"):
        train(folder)
    assert files_below(folder) == before


def state_of(run):
    """The state that determines how a run continues, bit for bit."""
    return [v.numpy().tobytes() for v in variables_of(run)], json.dumps(run.divergence.state)


def variables_of(run):
    weights = run.estimator.model.named_weights()
    slots, step = run.optimizer.named_slots.values(), run.optimizer.iterations
    return [*weights.values(), *slots, step]


def trials(data, every, seed):
    """Damaged versions of a file: bits flipped at regular distances, cuts, additions and zeros."""
    rng = np.random.default_rng(seed)
    for at in range(0, len(data), every):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.integers(8)
        yield "flipped", bytes(changed)
    for size in range(0, len(data), 5 * every):
        yield "cut", data[:size]
    for size in (1, 512, 4096):
        yield "longer", data + bytes(size)
        yield "zeros", data[: max(0, len(data) - size)] + bytes(min(size, len(data)))


@pytest.mark.slow
@pytest.mark.parametrize(("file", "every"), [("index", 17), ("data-00000-of-00001", 149)])
def test_damage_to_any_byte_never_restores_wrong_values(
    folder, interrupted, new_run, train, uninterrupted, capsys, file, every
):
    name = f"{NEWEST}.{file}"
    estimator, spec, held_out = new_run(folder)
    run = TrainingRun(estimator, spec, held_out)
    fresh, states = run.divergence.state, {}
    for step in (3, 6):
        run.store.restore(str(folder / f"checkpoints/ckpt-{step}"))
        states[step] = state_of(run)
    whole, counts, lasted = (interrupted / name).read_bytes(), {}, []
    good = files_below(interrupted / "checkpoints")
    for kind, data in trials(whole, every, seed=1):
        for path, content in good.items():
            (folder / "checkpoints" / path).write_bytes(content)
        (folder / name).write_bytes(data)
        for variable in variables_of(run):
            variable.assign(tf.zeros_like(variable))
        run.divergence.state = fresh
        capsys.readouterr()
        run.store.restore_newest()
        state, out = state_of(run), capsys.readouterr().out
        taken = next(step for step in (6, 3) if state == states[step])
        assert f"ckpt-{taken}" in out or (taken == 6 and not out)
        outcome = f"{kind}: {'found, ' if out else ''}ckpt-{taken} taken"
        counts[outcome] = counts.get(outcome, 0) + 1
        lasted.append((kind, data))
    assert counts.get("flipped: found, ckpt-3 taken", 0)
    began, ends = time.monotonic(), 0
    for kind, data in lasted[:: len(lasted) // 3]:
        shutil.rmtree(folder)
        shutil.copytree(interrupted, folder)
        (folder / name).write_bytes(data)
        train(folder)
        assert end(folder) == uninterrupted, kind
        ends += 1
    with capsys.disabled():
        print(
            f"\n{name} ({len(whole)} bytes), {len(lasted)} damaged versions: "
            + ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
            + f"; {ends} of them trained to the end, bit-identical each time "
            f"({time.monotonic() - began:.0f} s)"
        )
