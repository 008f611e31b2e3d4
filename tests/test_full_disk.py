# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs on a full disk: one sentence, no incomplete files, and success with more space."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data_prep import create_pretraining_data, split_sentences, train_sentencepiece
from albert_tf.scripts import convert_checkpoint, export_tfhub, run_classifier, run_pretraining
from albert_tf.weights.checkpoint import check_checkpoint
from albert_tf.weights.run_folder import BestRecord, checkpoints_in
from tests.faults.configurations import CONFIGURATIONS, write_data
from tests.support.releases import write_release
from tests.training.damage import files_below, stored

ROOT = Path(__file__).parents[1]
RELEASE = ROOT / "tests/golden/tf1_tiny"
PAGE = 4096
#: More than any of these programs writes.
DISK_BYTES = 24 << 20


class Disk:
    """A small file system.

    Attributes:
      folder: the mount point.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    @contextlib.contextmanager
    def with_room_for(self, size: int):
        """Fills the disk except for about `size` bytes."""
        with open(self._filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(bytes(1 << 20)):
                pass
        self._filler.open("r+b").truncate(max(0, self._filler.stat().st_size - size))
        yield
        self._filler.unlink()


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with the programs' inputs, on another disk."""
    folder = tmp_path_factory.mktemp("inputs")
    write_release(folder / "release", "vocab.txt")
    write_data(folder)
    return folder


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that writes to a disk.

    Attributes:
      module: the script's module.
      flags: returns its command line, given the input and the output folder.
      result: returns what must be equal in the end, given the output folder; by default all files.
      grows: returns whether a file of this name, such as a log, may be incomplete.
      folder: a subfolder of the output folder that appears only when it is complete.
      disks: number of disk sizes to try.
    """

    module: object
    flags: Callable[[Path, Path], list[str]]
    result: Callable[[Path], object] = files_below
    grows: Callable[[str], bool] = lambda name: False
    folder: str = ""
    disks: int = 25


def _trained(folder: Path) -> object:
    """Returns the values in the checkpoints, and the other files except for logs and times."""
    checkpoints = {str(p.relative_to(folder)): stored(p.with_suffix(""))
                   for p in folder.rglob("ckpt-*.index")}  # fmt: skip
    logs = ("ckpt-", "events", "metrics.jsonl", "checkpoints/checkpoint")
    rest = {k: v for k, v in files_below(folder).items() if not any(x in k for x in logs)}
    return checkpoints, rest


def _is_log(name: str) -> bool:
    return "events" in name or name.endswith("metrics.jsonl")


def _arguments(name: str, *more: str) -> Callable[[Path, Path], list[str]]:
    """Returns the command line of a program that tests/faults kills, with more flags."""
    return lambda inputs, out: [*CONFIGURATIONS[name].arguments(inputs, out), *more]


PROGRAMS = {
    "create_pretraining_data": Program(
        create_pretraining_data,
        _arguments("builder", "--dupe_factor=3", "--num_shards=3"),
        grows=lambda name: name.startswith("_build/"),
    ),
    "run_pretraining": Program(
        run_pretraining,
        _arguments(
            "offline masks",
            "--num_train_steps=6",
            "--save_checkpoints_steps=2",
            "--keep_checkpoint_max=2",
        ),
        result=_trained,
        grows=_is_log,
        disks=6,
    ),
    "run_classifier": Program(
        run_classifier,
        _arguments("classifier", "--train_step=6", "--eval_every_steps=1000"),
        result=_trained,
        grows=_is_log,
        disks=6,
    ),
    "split_sentences": Program(
        split_sentences,
        lambda inputs, out: [
            f"--input_file={inputs / 'text.txt'}",
            f"--output_file={out / 'sentences.txt'}",
        ],
    ),
    "train_sentencepiece": Program(
        train_sentencepiece,
        lambda inputs, out: [
            f"--input_file={inputs / 'text.txt'}",
            f"--output_prefix={out / 'en'}",
            "--vocab_size=60",
            "--overwrite",  # What a full disk has cut off is not deleted.
        ],
    ),
    "convert_checkpoint": Program(
        convert_checkpoint,
        lambda inputs, out: [f"--from_path={RELEASE}", "--to=hf", f"--output_dir={out / 'hf'}"],
        folder="hf",
    ),
    "export": Program(
        export_tfhub,
        lambda inputs, out: [
            f"--albert_directory={inputs / 'release'}",
            "--export_type=model_with_mlm",
            f"--export_path={out / 'hub'}",
        ],
        result=lambda out: (sorted(files_below(out)), stored(out / "hub/variables/variables")),
        folder="hub",
        disks=4,
    ),
}


def run(run_script, program, inputs, out):
    out.mkdir(exist_ok=True)
    return run_script(program.module, *program.flags(inputs, out))


def assert_one_sentence(done):
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and errors[0].startswith("error: There is no space left for ")
    assert "; free some, and run the same command again." in errors[0]
    assert "Traceback" not in done.stderr + done.stdout


def assert_good_state(program, out, whole):
    """Checks that files with a final name are complete and all checkpoints can be read."""
    present = files_below(out)
    temporary = (".tmp-", "_temp", "tempstate")
    assert not [name for name in present if any(x in name for x in temporary)]
    assert not (program.folder and (out / program.folder).exists())
    changing = ("checkpoints/", "best/")
    for name, content in present.items():
        if not (name.startswith(changing) or program.grows(name)):
            assert content == whole[name], f"{name} is incomplete"
    for prefix in checkpoints_in(str(out / "checkpoints")).values():
        check_checkpoint(prefix)
    best = BestRecord.load(str(out / "best"))
    if best:
        check_checkpoint(str(out / "best" / best.checkpoint))


def run_on_full_disks(name, disk, inputs, run_script, shares):
    """Runs a program with room for each share of its result; returns a line about it."""
    program = PROGRAMS[name]
    undisturbed = inputs.parent / f"undisturbed-{name}"
    done = run(run_script, program, inputs, undisturbed).ok()
    whole, expected = files_below(undisturbed), program.result(undisturbed)
    size = sum(-(-len(content) // PAGE) * PAGE for content in whole.values())
    failed, compared = 0, 0
    for number, share in enumerate(shares):
        out = disk.folder / f"{name}-{number}"
        with disk.with_room_for(int(size * share)):
            done = run(run_script, program, inputs, out)
            if done.returncode:
                assert_one_sentence(done)
                assert_good_state(program, out, whole)
                failed += 1
        if done.returncode:
            kept = checkpoints_in(str(out / "checkpoints"))
            done = run(run_script, program, inputs, out).ok()
            if kept:
                assert f"Resuming {out} at step {max(kept)}." in done.stdout
        assert program.result(out) == expected
        compared += sum(map(len, files_below(out).values()))
        shutil.rmtree(out)
    assert failed
    return (
        f"{name} ({size} bytes): {len(shares)} disks, full in {failed} of them, each time one "
        f"sentence; then finished, {compared} bytes as undisturbed"
    )


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("create_pretraining_data", (0, 0.5, 1)),
        pytest.param("run_pretraining", (0.6,), marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_stops_a_program_that_then_continues(disk, inputs, run_script, name, shares):
    run_on_full_disks(name, disk, inputs, run_script, shares)


def test_a_build_without_room_for_its_tokens_keeps_its_plan(disk, inputs, run_script):
    out = disk.folder / "build"
    with disk.with_room_for(3 * PAGE):
        done = run(run_script, PROGRAMS["create_pretraining_data"], inputs, out)
        assert_one_sentence(done)
    assert "_build/buckets.tmp-" in done.stderr
    assert [p.name for p in (out / "_build").iterdir()] == ["plan.json"]
    shutil.rmtree(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_continues_wherever_the_disk_is_full(disk, inputs, run_script, capfd, name):
    shares = np.linspace(0, 1.5, PROGRAMS[name].disks)
    line = run_on_full_disks(name, disk, inputs, run_script, shares)
    with capfd.disabled():
        print(f"\n{line}")
