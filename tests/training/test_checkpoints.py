# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints are found, read and replaced; damaged ones are named, renamed and passed over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, StoppedError
from albert_tf.io import removal
from albert_tf.optimization.optimizer import AlbertOptimizer
from albert_tf.training import checkpoints
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.weights.load import load_weights
from albert_tf.weights.run_folder import BestRecord, RunFolder, find_checkpoint
from tests.training.damage import DAMAGE, files_below, flip
from tests.training.runs import saved_steps

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
        self.optimizer = AlbertOptimizer("lamb", 0.1, self.weights)
        self.note = Note()
        state = {"note": self.note, "optimizer": self.optimizer.state}
        self.store = CheckpointStore(RunFolder(str(folder)), self.weights, state, 3)

    def go_to(self, step):
        for i, variable in enumerate(
            [*self.weights.values(), *self.optimizer.named_slots.values()]
        ):
            variable.assign(tf.fill(variable.shape, step + i / 8))
        self.optimizer.iterations.assign(step)
        self.note.text = f"step {step}"

    def save(self, *steps):
        for step in steps:
            self.go_to(step)
            self.store.save(step)

    def state(self):
        optimizer = [*self.optimizer.named_slots.values(), self.optimizer.iterations]
        variables = [*self.weights.values(), *optimizer]
        return [v.numpy().tobytes() for v in variables], self.note.text


def restored(folder):
    run = Run(folder)
    run.store.set_aside(run.store.restore_newest())
    run.store.restore_best()
    run.store.tidy()
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
    run.store.save_best(BestRecord(15, "accuracy", 0.5, "ckpt-15"))
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
    before = files_below(folder / "checkpoints")
    run = restored(folder)
    assert run.state() == state_at(20, folder)
    newest, taken = folder / "checkpoints/ckpt-30", folder / "checkpoints/ckpt-20"
    out = capsys.readouterr().out
    if (kind, part) == ("missing", "index"):  # It was never complete.
        assert not out
        after = files_below(folder / "checkpoints")
        assert {**after, "checkpoint": before["checkpoint"]} == before  # A list of the others.
        return
    line, *renamed = out.splitlines()
    assert line.startswith(f"The checkpoint {newest} is damaged: ")
    assert line.endswith(f" Resuming from {taken}.")
    assert all(text.endswith(".damaged.") for text in renamed)
    # Killed before the index, a run finds and names the checkpoint again.
    assert renamed[-1].startswith("The damaged ckpt-30.index ")
    # Nothing is deleted: the damaged files have other names.
    aside = {f"{n}.damaged" if n.startswith("ckpt-30") else n: x for n, x in before.items()}
    after = files_below(folder / "checkpoints")
    assert b'model_checkpoint_path: "ckpt-20"' in after.pop("checkpoint")
    del aside["checkpoint"]
    assert after == aside
    assert list(Run(folder).store.folder.checkpoints()) == [10, 20]


def test_of_several_damaged_checkpoints_each_is_named(folder, capsys):
    DAMAGE["cut off"](folder / "checkpoints/ckpt-30.index")
    DAMAGE["a bit flipped"](folder / "checkpoints/ckpt-20.data-00000-of-00001")
    run = restored(folder)
    assert run.state() == state_at(10, folder)
    lines = capsys.readouterr().out.splitlines()
    assert ["ckpt-30 is damaged" in lines[0], "ckpt-20 is damaged" in lines[1]] == [True, True]
    assert all(line.endswith("ckpt-10.") for line in lines[:2])
    assert len(lines) == 2 + 4  # Two files of each are renamed.


def assert_refused_unchanged(folder, message):
    before = files_below(folder)
    store = Run(folder).store
    assert store.folder.has_saved()
    with pytest.raises(AlbertError, match=message):
        store.restore_newest()
    assert files_below(folder) == before


@pytest.mark.parametrize("kind", DAMAGE)
def test_without_a_good_checkpoint_nothing_is_changed(folder, kind):
    for step in (10, 20, 30):
        DAMAGE[kind](folder / f"checkpoints/ckpt-{step}.data-00000-of-00001")
    assert_refused_unchanged(folder, r"ckpt-30 is damaged.*There is no good checkpoint in")


@pytest.mark.parametrize("damage", DAMAGE.values())
def test_a_damaged_list_of_checkpoints_does_not_matter(folder, damage):
    damage(folder / "checkpoints/checkpoint")
    run = restored(folder)
    assert run.state() == state_at(30, folder)
    run.save(40, 50)
    assert saved_steps(folder) == [30, 40, 50]


def test_only_complete_checkpoints_count(tmp_path):
    folder = tmp_path / "checkpoints"
    (folder / "ckpt-5.tmp-0123456789abcdef-01234567").mkdir(parents=True)
    (folder / "ckpt-5.data-00000-of-00001").write_bytes(b"x")
    run = Run(tmp_path)
    assert not run.store.folder.has_saved()
    run.save(5)
    assert list(run.store.folder.checkpoints()) == [5]
    assert Run(tmp_path).store.restore_newest() == []


def test_a_checkpoint_is_read_back_before_an_older_one_is_deleted(folder, monkeypatch):
    run = restored(folder)
    before = files_below(folder)
    check = checkpoints.check_checkpoint

    def fail_on_new(prefix):
        flip(Path(f"{prefix}.data-00000-of-00001"), 20)  # As a bad disk would.
        check(prefix)

    monkeypatch.setattr(checkpoints, "check_checkpoint", fail_on_new)
    with pytest.raises(AlbertError, match=r"Cannot write the checkpoint of step 40 .*ckpt-30\."):
        run.save(40)
    assert files_below(folder) == before


def test_only_the_files_of_old_checkpoints_are_deleted(folder):
    (folder / "checkpoints/ckpt-10.mine").mkdir()
    (folder / "checkpoints/ckpt-10-backup.index").touch()
    (folder / "checkpoints/ckpt-10.index.damaged").touch()
    restored(folder).save(40)
    names = {path.name for path in (folder / "checkpoints").iterdir() if "ckpt-10" in path.name}
    assert names == {"ckpt-10.mine", "ckpt-10-backup.index", "ckpt-10.index.damaged"}
    assert list(Run(folder).store.folder.checkpoints()) == [20, 30, 40]


@pytest.mark.parametrize("left", ["data-00000-of-00001", "index"])
def test_a_resumed_run_deletes_what_the_last_save_could_not(folder, left, monkeypatch):
    run, remove = restored(folder), removal.remove_files

    def fail(path, names):
        remove(path, [name for name in names if not name.endswith(left)])
        raise StoppedError("The disk is gone.")

    monkeypatch.setattr(removal, "remove_files", fail)
    with pytest.raises(StoppedError):
        run.save(40)
    monkeypatch.undo()
    assert f"ckpt-10.{left}" in os.listdir(folder / "checkpoints")
    restored(folder)
    assert not [name for name in os.listdir(folder / "checkpoints") if "ckpt-10" in name]
    assert tf.train.latest_checkpoint(str(folder / "checkpoints")).endswith("ckpt-40")


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
def test_damaged_best_weights_are_renamed_by_training_and_refused_by_others(
    folder, capsys, kind, name
):
    DAMAGE[kind](folder / "best" / name)
    before = files_below(folder / "best")
    fresh = Run(folder.with_name("other")).weights
    if (kind, name) == ("missing", "best.json"):  # Without a record there are no best weights.
        assert load_weights(str(folder), fresh).checkpoint == str(folder / "checkpoints/ckpt-30")
        assert restored(folder).store.best is None
        assert files_below(folder / "best") == before
        return
    with pytest.raises(DamagedError, match="damaged"):
        load_weights(str(folder), fresh)
    run = restored(folder)
    assert run.store.best is None
    aside = f"They are now in {folder}/best.damaged; the next evaluation is the best."
    assert aside in capsys.readouterr().out
    assert files_below(folder / "best.damaged") == before
    run.store.save_best(BestRecord(35, "accuracy", 0.1, "ckpt-35"))
    assert find_checkpoint(str(folder)) == str(folder / "best/ckpt-35")
    assert files_below(folder / "best.damaged") == before


def test_a_changed_value_of_the_best_evaluation_is_noticed(folder, capsys):
    assert restored(folder).store.best.step == 15
    path = folder / "best/best.json"
    path.write_text(path.read_text().replace("0.5", "0.7"))
    assert restored(folder).store.best is None
    assert "does not match its checksum" in capsys.readouterr().out


def test_the_next_best_weights_replace_the_former_ones_and_nothing_else(folder):
    (folder / "best/ckpt-15.index.mine").touch()
    run = restored(folder)
    run.store.save_best(BestRecord(25, "accuracy", 0.6, "ckpt-25"))
    names = sorted(p.name for p in (folder / "best").iterdir())
    new = ["best.json", "ckpt-15.index.mine", "ckpt-25.data-00000-of-00001", "ckpt-25.index"]
    assert names == new


@pytest.mark.parametrize("kind", DAMAGE)
def test_weights_of_a_damaged_checkpoint_are_refused(folder, kind):
    shutil.rmtree(folder / "best")
    data = folder / "checkpoints/ckpt-30.data-00000-of-00001"
    if kind == "a bit flipped":  # In a weight: the optimizer's slots are not read.
        flip(data, data.read_bytes().index(np.float32(30).tobytes() * 15))
    else:
        DAMAGE[kind](data)
    before = files_below(folder)
    fresh = Run(folder.with_name("other")).weights
    for path in (folder, folder / "checkpoints/ckpt-30"):
        with pytest.raises(DamagedError, match=r"ckpt-30 is damaged: .* name another checkpoint"):
            load_weights(str(path), fresh)
    assert files_below(folder) == before
    load_weights(str(folder / "checkpoints/ckpt-20"), fresh)
    assert [float(v[0, 0]) for v in fresh.values()] == [20, 20.125]


def variables(value):
    shapes = {"bert/a/kernel": [2, 3], "bert/a.b/bias": [3], "cls/output_bias": [4]}
    return {name: tf.Variable(tf.fill(shape, float(value))) for name, shape in shapes.items()}


def store_of(folder, weights):
    return CheckpointStore(RunFolder(str(folder)), weights, {}, keep_max=3)


def test_the_best_weights_of_an_output_dir_come_before_the_newest(tmp_path):
    weights = variables(1)
    store = store_of(tmp_path, weights)
    store.save_best(BestRecord(3, "accuracy", 0.5, "ckpt-3"))
    weights["bert/a/kernel"].assign(tf.fill([2, 3], 9.0))
    store.save(7)
    assert find_checkpoint(str(tmp_path)).endswith("best/ckpt-3")
    assert find_checkpoint(str(tmp_path / "checkpoints")).endswith("checkpoints/ckpt-7")
    assert find_checkpoint(str(tmp_path / "checkpoints/ckpt-7")).endswith("ckpt-7")
    fresh = variables(0)
    load_weights(str(tmp_path), fresh)
    assert (fresh["bert/a/kernel"].numpy() == 1).all()


@pytest.mark.parametrize("relative", [False, True])
def test_tensorflow_finds_the_newest_checkpoint_also_in_a_moved_folder(
    tmp_path, monkeypatch, relative
):
    monkeypatch.chdir(tmp_path)
    store = store_of("run" if relative else str(tmp_path / "run"), variables(1))
    for step in (10, 20):
        store.save(step)
    (tmp_path / "run").rename(tmp_path / "moved")
    for folder in ("moved", tmp_path / "moved"):
        found = tf.train.latest_checkpoint(f"{folder}/checkpoints")
        assert found == f"{folder}/checkpoints/ckpt-20"
        assert max(RunFolder(str(folder)).checkpoints()) == 20
