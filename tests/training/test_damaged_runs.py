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

from albert_tf import EvalSpec, RunConfig, TrainSpec
from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from tests.training.conftest import HEADS_ALONE
from tests.training.damage import DAMAGE, files_below, stored

STEPS = 8
NEWEST = "checkpoints/ckpt-6"
FILES = [f"{NEWEST}.index", f"{NEWEST}.data-00000-of-00001", "checkpoints/checkpoint"]


def make(folder, config, records, wrap=lambda input_fn: input_fn):
    """A run with a checkpoint each third step and an evaluation each second."""
    source = open_records(",".join(records), config)
    run_config = RunConfig(
        output_dir=str(folder),
        train_batch_size=8,
        eval_batch_size=16,
        learning_rate=0.01,
        num_warmup_steps=2,
        save_checkpoints_steps=3,
        log_every_steps=1,
        **HEADS_ALONE,
    )
    estimator = Estimator(PretrainingTask(config, source), run_config)
    spec = TrainSpec(wrap(source.train_input_fn), STEPS, source.fingerprint)
    return estimator, spec, EvalSpec(source.eval_input_fn, max_steps=2, every_steps=2)


def train(folder, config, records, wrap=lambda input_fn: input_fn):
    estimator, spec, held_out = make(folder, config, records, wrap)
    estimator.train_and_evaluate(spec, held_out)
    return estimator, held_out


def killed_at_the_end(input_fn):
    """The training data, which fail before the last step."""

    def fail(step):
        if step == STEPS - 1:
            raise InterruptedError
        return step

    def broken(context):
        def count(i, batch):
            with tf.control_dependencies([tf.py_function(fail, [i], tf.int64)]):
                return {name: tf.identity(value) for name, value in batch.items()}

        return input_fn(context).enumerate(context.start_step).map(count)

    return broken


def end(folder):
    """All that a run ends with, but for times."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("per_second", "input_wait", "tokens", "examples")
    curve = [{k: v for k, v in x.items() if not any(t in k for t in timed)} for x in lines]
    best = (folder / "best/best.json").read_text()
    weights = stored(folder / "best" / json.loads(best)["checkpoint"])
    return stored(folder / f"checkpoints/ckpt-{STEPS}"), curve, best, weights


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny_config, record_paths):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(folder, tiny_config, record_paths)
    return end(folder)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, tiny_config, record_paths):
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(tf.errors.OpError):
        train(folder, tiny_config, record_paths, killed_at_the_end)
    assert saved_steps(folder) == [3, 6]
    return folder


def saved_steps(folder):
    return sorted(int(p.stem[5:]) for p in (folder / "checkpoints").glob("*.index"))


@pytest.fixture
def folder(interrupted, tmp_path):
    return shutil.copytree(interrupted, tmp_path / "run")


@pytest.mark.slow  # test_damaged_checkpoints.py has the same for the store of checkpoints.
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("file", FILES)
def test_a_run_with_a_damaged_checkpoint_ends_as_if_nothing_had_happened(
    folder, tiny_config, record_paths, uninterrupted, capsys, file, kind
):
    DAMAGE[kind](folder / file)
    train(folder, tiny_config, record_paths)
    assert end(folder) == uninterrupted
    from_step = 6 if file.endswith("checkpoint") else 3
    out = capsys.readouterr().out
    assert f"Going on from {folder}/checkpoints/ckpt-{from_step}." in out
    assert f"Resuming {folder} at step {from_step}." in out
    assert saved_steps(folder) == [3, 6, 8]


@pytest.mark.slow  # test_damaged_checkpoints.py has the same for the store of checkpoints.
def test_evaluation_passes_over_damaged_best_weights_and_training_finds_new_ones(
    folder, tiny_config, record_paths, uninterrupted, capsys
):
    DAMAGE["zeros"](next((folder / "best").glob("*.data*")))
    estimator, held_out = train(folder, tiny_config, record_paths)
    out = capsys.readouterr().out
    assert "Forgetting these best weights" in out
    state, curve, best, _ = end(folder)
    assert (state, curve) == uninterrupted[:2]
    assert json.loads(best)["step"] == 8  # Of those evaluated since.
    DAMAGE["zeros"](next((folder / "best").glob("*.data*")))
    metrics = estimator.evaluate(held_out)
    out = capsys.readouterr().out
    assert "best/ckpt-8 is damaged: " in out
    assert f"Taking {folder}/checkpoints/ckpt-8." in out
    assert metrics == pytest.approx(estimator.evaluate(held_out, f"{folder}/checkpoints/ckpt-8"))


@pytest.mark.parametrize("kind", DAMAGE)
def test_without_its_configuration_no_run_is_resumed(folder, tiny_config, record_paths, kind):
    DAMAGE[kind](folder / "run_config.json")
    before = files_below(folder)
    with pytest.raises(AlbertError, match=r"run_config.json|holds another run"):
        train(folder, tiny_config, record_paths)
    assert files_below(folder) == before


@pytest.mark.parametrize(
    "content", ["", "[", "{}", "[1]", '[{"cause": "x"}]', '[{"cause": "x", "text": "y", "step": 9, '
    '"to_step": 6, "learning_rate_factor": 0.5, "skipped_batches": 2}]'],
)  # fmt: skip
def test_a_damaged_record_of_rollbacks_is_one_sentence(folder, tiny_config, record_paths, content):
    (folder / "rollbacks.json").write_text(content)
    with pytest.raises(AlbertError, match=r"record of rollbacks .*rollbacks.json"):
        train(folder, tiny_config, record_paths)


@pytest.mark.slow
def test_damaged_lines_of_the_log_are_dropped_and_counted(
    folder, tiny_config, record_paths, uninterrupted, capsys
):
    lines = (folder / "metrics.jsonl").read_bytes().splitlines()
    lines[1:1] = [b'{"step": 1, "sp', b"\xff\xfe\0", b"[]"]
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines) + b'\n{"step": 7, "spl')
    train(folder, tiny_config, record_paths)
    assert end(folder) == uninterrupted
    assert "metrics.jsonl has 3 damaged lines; they are dropped." in capsys.readouterr().out


def state_of(run):
    """All that decides how a run goes on, bit for bit."""
    return [v.numpy().tobytes() for v in variables_of(run)], run.memory.serialize()


def variables_of(run):
    weights = run.evaluator.model.named_weights()
    return [*weights.values(), *run.optimizer.weights, run.skipped]


def trials(data, every, seed):
    """Damaged versions of a file: each so-manieth byte with a bit flipped, cut at many lengths."""
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
@pytest.mark.parametrize(
    ("file", "every"),
    [("index", 17), ("data-00000-of-00001", 149), ("checkpoint", 2)],
)
def test_whatever_byte_is_damaged_the_state_is_that_of_a_checkpoint(
    folder, interrupted, tiny_config, record_paths, uninterrupted, capsys, file, every
):
    name = "checkpoints/checkpoint" if file == "checkpoint" else f"{NEWEST}.{file}"
    estimator, spec, held_out = make(folder, tiny_config, record_paths)
    run = TrainingRun(estimator, spec, held_out)
    fresh, states = run.memory.serialize(), {}
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
        run.memory.deserialize(fresh)
        capsys.readouterr()
        run.store.restore_newest()
        state, out = state_of(run), capsys.readouterr().out
        taken = next(step for step in (6, 3) if state == states[step])
        assert f"ckpt-{taken}" in out or (taken == 6 and not out)
        assert saved_steps(folder) == [3, 6][: 1 + (taken == 6)]
        outcome = f"{kind}: {'found, ' if out else ''}ckpt-{taken} taken"
        counts[outcome] = counts.get(outcome, 0) + 1
        lasted.append((kind, data))
    assert counts.get("flipped: found, ckpt-3 taken", 0) or file == "checkpoint"
    began, ends = time.monotonic(), 0
    for kind, data in lasted[:: len(lasted) // 3]:
        shutil.rmtree(folder)
        shutil.copytree(interrupted, folder)
        (folder / name).write_bytes(data)
        train(folder, tiny_config, record_paths)
        assert end(folder) == uninterrupted, kind
        ends += 1
    with capsys.disabled():
        print(
            f"\n{name} ({len(whole)} bytes), {len(lasted)} damaged versions: "
            + ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
            + f"; {ends} of them trained to the end, bit-identical each time "
            f"({time.monotonic() - began:.0f} s)"
        )
