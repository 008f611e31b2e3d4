# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError
from albert_tf.optimization.optimizer import create_optimizer
from albert_tf.training import checkpoints
from albert_tf.training.checkpoints import CheckpointStore, load_weights
from albert_tf.weights.checkpoint import open_checkpoint
from albert_tf.weights.checkpoint_files import find_checkpoint
from tests.training.damage import DAMAGE, files_below, flip
from tests.training.runs import InterruptedRunError, fail, saved_steps

PARTS = ["index", "data-00000-of-00001"]


class Note(tf.train.experimental.PythonState):
    """A Python state that differs between checkpoints."""

    text = ""

    def serialize(self):
        return self.text

    def deserialize(self, serialized):
        self.text = tf.compat.as_str(serialized)


class Run:
    """A store, and weights that differ between checkpoints."""

    def __init__(self, folder, size=3):
        self.weights = {
            name: tf.Variable(tf.zeros([size, 5])) for name in ("bert/a/kernel", "bert/b/kernel")
        }
        self.optimizer = create_optimizer("lamb", 0.1, self.weights)
        self.note = Note()
        state = {"note": self.note}
        self.store = CheckpointStore(str(folder), self.weights, self.optimizer, state, 3)

    def go_to(self, step):
        for i, variable in enumerate([*self.weights.values(), *self.optimizer.weights[1:]]):
            variable.assign(tf.fill(variable.shape, step + i / 8))
        self.optimizer.iterations.assign(step)
        self.note.text = f"step {step}"

    def save(self, *steps):
        for step in steps:
            self.go_to(step)
            self.store.save(step)

    def state(self):
        variables = [*self.weights.values(), *self.optimizer.weights]
        return [v.numpy().tobytes() for v in variables], self.note.text


def restored(folder):
    run = Run(folder)
    run.store.restore_newest()
    return run


def state_at(step, folder):
    run = Run(folder)
    run.go_to(step)
    return run.state()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run with checkpoints of steps 10, 20 and 30 and the best weights of step 15."""
    folder = tmp_path_factory.mktemp("saved")
    run = Run(folder)
    run.save(10)
    run.go_to(15)
    run.store.save_best(15, "accuracy", 0.5)
    run.save(20, 30)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_restored(
    folder, capsys, kind, part
):
    DAMAGE[kind](folder / f"checkpoints/ckpt-30.{part}")
    run = restored(folder)
    assert run.state() == state_at(20, folder)
    (line,) = capsys.readouterr().out.splitlines()
    newest, taken = folder / "checkpoints/ckpt-30", folder / "checkpoints/ckpt-20"
    if (kind, part) == ("missing", "index"):
        assert "names 'ckpt-30', which does not exist; there are ckpt-20, ckpt-10." in line
    else:
        assert line.startswith(f"The checkpoint {newest} is damaged: ")
    assert line.endswith(f" Resuming from {taken}.")
    assert saved_steps(folder) == [10, 20]
    assert list(Run(folder).store.kept()) == [10, 20]


def test_of_several_damaged_checkpoints_each_is_named(folder, capsys):
    DAMAGE["cut off"](folder / "checkpoints/ckpt-30.index")
    DAMAGE["a bit flipped"](folder / "checkpoints/ckpt-20.data-00000-of-00001")
    run = restored(folder)
    assert run.state() == state_at(10, folder)
    lines = capsys.readouterr().out.splitlines()
    assert ["ckpt-30 is damaged" in lines[0], "ckpt-20 is damaged" in lines[1]] == [True, True]
    assert all(line.endswith("ckpt-10.") for line in lines)


def assert_refused_unchanged(folder, message):
    before = files_below(folder)
    store = Run(folder).store
    assert store.latest()
    with pytest.raises(AlbertError, match=message):
        store.restore_newest()
    assert files_below(folder) == before


@pytest.mark.parametrize("kind", DAMAGE)
def test_without_a_good_checkpoint_nothing_is_changed(folder, kind):
    for step in (10, 20, 30):
        DAMAGE[kind](folder / f"checkpoints/ckpt-{step}.data-00000-of-00001")
    assert_refused_unchanged(folder, r"ckpt-30 is damaged.*There is no good checkpoint in")


def test_an_index_that_points_beyond_its_end_is_damaged(tmp_path):
    prefix = tf.train.Checkpoint(weights=tf.Variable([1.0])).write(str(tmp_path / "ckpt"))
    index = tmp_path / "ckpt.index"
    content = bytearray(index.read_bytes())
    content[-46:-44] = b"\xff\x7f"  # In the last 48 bytes: where the list of blocks lies.
    index.write_bytes(content)
    with pytest.raises(DamagedError, match="is damaged"):
        open_checkpoint(prefix)


def test_the_remains_of_a_deleted_checkpoint_are_removed(folder):
    (folder / "checkpoints/ckpt-10.index").unlink()
    restored(folder)
    steps = {p.name.split(".")[0] for p in (folder / "checkpoints").glob("ckpt-*")}
    assert steps == {"ckpt-20", "ckpt-30"}


def test_missing_indexes_do_not_start_the_run_afresh(folder):
    for step in (10, 20, 30):
        (folder / f"checkpoints/ckpt-{step}.index").unlink()
    assert_refused_unchanged(folder, r"ckpt-30.index is missing.*no good checkpoint")


def name_another(path):
    path.write_text(path.read_text().replace("ckpt-30", "ckpt-38"))


@pytest.mark.parametrize("damage", [*DAMAGE.values(), name_another])
def test_without_a_good_list_of_checkpoints_the_files_count(folder, capsys, damage):
    damage(folder / "checkpoints/checkpoint")
    run = restored(folder)
    assert run.state() == state_at(30, folder)
    out = capsys.readouterr().out
    assert out.startswith(f"The list of checkpoints {folder}/checkpoints/checkpoint ")
    assert out.endswith(
        f"there are ckpt-30, ckpt-20, ckpt-10. Resuming from {folder}/checkpoints/ckpt-30.\n"
    )
    assert out.count("\n") == 1
    run.save(40, 50)
    assert saved_steps(folder) == [30, 40, 50]
    assert list(Run(folder).store.kept()) == [30, 40, 50]


def test_a_forgotten_checkpoint_does_not_come_back(folder, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_delete", lambda *_: fail())
        with pytest.raises(InterruptedRunError):
            Run(folder).store.forget_after(20)
    assert saved_steps(folder) == [10, 20, 30]
    run = restored(folder)
    assert run.state() == state_at(20, folder)
    (folder / "checkpoints/checkpoint").unlink()
    assert list(Run(folder).store.kept()) == [10, 20]


def test_an_unfinished_first_checkpoint_does_not_count(tmp_path):
    folder = tmp_path / "checkpoints"
    (folder / "ckpt-5_temp").mkdir(parents=True)
    (folder / "ckpt-5_temp/part-00000-of-00001.index").write_bytes(b"x")
    (folder / "ckpt-5.index").write_bytes(b"")
    (folder / "ckpt-5.data-00000-of-00001").write_bytes(b"x")
    run = Run(tmp_path)
    assert run.store.latest() is None
    run.store.begin()
    assert not list(folder.iterdir())
    run.save(5)
    assert list(run.store.kept()) == [5]


def test_a_checkpoint_that_cannot_be_completed_leaves_nothing(folder):
    run = restored(folder)
    before = set(files_below(folder))
    (folder / "checkpoints/ckpt-40.index").mkdir()
    with pytest.raises(AlbertError, match=r"Cannot write the checkpoint of step 40 .*ckpt-30\."):
        run.save(40)
    assert set(files_below(folder)) == before


def test_a_checkpoint_of_another_model_is_not_taken_for_a_damaged_one(folder, tmp_path):
    Run(tmp_path / "other", size=4).save(30)
    for part in PARTS:
        name = f"checkpoints/ckpt-30.{part}"
        shutil.copy(tmp_path / "other" / name, folder / name)
    assert_refused_unchanged(folder, "ckpt-30 does not fit this run")


def test_a_checkpoint_that_cannot_be_accessed_is_not_taken_for_a_damaged_one(folder):
    data = folder / "checkpoints/ckpt-30.data-00000-of-00001"
    data.unlink()
    data.mkdir()
    assert_refused_unchanged(folder, r"ckpt-30 cannot be read: .*directory")


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", ["best.json", "ckpt-15.index", "ckpt-15.data-00000-of-00001"])
def test_damaged_best_weights_are_forgotten_by_training_and_passed_over_by_others(
    folder, capsys, kind, name
):
    DAMAGE[kind](folder / "best" / name)
    fresh = Run(folder.with_name("other")).weights
    report = load_weights(str(folder), fresh)
    assert report.checkpoint == str(folder / "checkpoints/ckpt-30")
    assert float(fresh["bert/a/kernel"][0, 0]) == 30
    out = capsys.readouterr().out
    run = restored(folder)
    assert run.store.best is None
    assert not (folder / "best").exists() or kind == "missing"
    if (kind, name) != ("missing", "best.json"):  # Without a record there are no best weights.
        assert out.count("is damaged") == 1
        assert out.endswith(f"Taking {folder}/checkpoints/ckpt-30.\n")
        assert "These best weights are discarded" in capsys.readouterr().out
    run.store.save_best(35, "accuracy", 0.1)
    assert find_checkpoint(str(folder)) == str(folder / "best/ckpt-35")


def test_a_changed_value_of_the_best_evaluation_is_noticed(folder, capsys):
    assert restored(folder).store.best.step == 15
    path = folder / "best/best.json"
    path.write_text(path.read_text().replace("0.5", "0.7"))
    assert restored(folder).store.best is None
    assert "does not match its checksum" in capsys.readouterr().out


def test_the_next_best_weights_replace_unfinished_ones(folder):
    (folder / "best/ckpt-20_temp").mkdir()
    (folder / "best/ckpt-20_temp/part-00000-of-00001.index").write_bytes(b"x")
    (folder / "best/ckpt-20.data-00000-of-00001").write_bytes(b"x")
    run = restored(folder)
    run.store.save_best(25, "accuracy", 0.6)
    names = sorted(p.name for p in (folder / "best").iterdir())
    assert names == ["best.json", "ckpt-25.data-00000-of-00001", "ckpt-25.index"]


@pytest.mark.parametrize("kind", DAMAGE)
def test_weights_pass_over_damaged_checkpoints_without_changing_anything(folder, capsys, kind):
    shutil.rmtree(folder / "best")
    data = folder / "checkpoints/ckpt-30.data-00000-of-00001"
    if kind == "a bit flipped":  # In a weight: the optimizer's slots are not read.
        flip(data, data.read_bytes().index(np.float32(30).tobytes() * 15))
    else:
        DAMAGE[kind](data)
    before = files_below(folder)
    fresh = Run(folder.with_name("other")).weights
    load_weights(str(folder), fresh)
    assert [float(v[0, 0]) for v in fresh.values()] == [20, 20.125]
    out = capsys.readouterr().out
    assert out.startswith(f"The checkpoint {folder}/checkpoints/ckpt-30 is damaged: ")
    assert out.endswith(f" Taking {folder}/checkpoints/ckpt-20.\n")
    assert files_below(folder) == before
    with pytest.raises(AlbertError, match=r"ckpt-30 is damaged.*Give another one"):
        load_weights(str(folder / "checkpoints/ckpt-30"), fresh)
