# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""--runner=beam: the bytes of the local runner, resume, errors."""

import functools
import gzip
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.files import sha256
from data_prep import beam_runner, create_pretraining_data, documents, pretraining_build, spill
from data_prep.beam_runner import BeamRunner
from data_prep.local_runner import LocalRunner
from data_prep.pretraining_build import Output, TokenizerSource, build_pretraining_data
from data_prep.pretraining_options import PretrainingOptions
from data_prep.record_files import find_records
from data_prep.verify_records import verify

ROOT = Path(__file__).parent.parent.parent
WORDS = [f"w{i}" for i in range(200)]
TWO_PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##x", "##y"]))
    return str(path)


def some_text(documents, sentences=12, seed=0):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        for _ in range(rng.integers(1, sentences)):
            lines.append(" ".join(rng.choice(WORDS, rng.integers(3, 9))))
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture
def texts(tmp_path):
    """Text files of different sizes: plain, compressed, without text, ending in a document."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "0.txt").write_text(some_text(60))
    (folder / "1.txt.gz").write_bytes(gzip.compress(some_text(30, seed=1).encode()))
    (folder / "2.txt").write_text("\n \n")
    (folder / "3.txt").write_text(some_text(2, sentences=90, seed=2).rstrip("\n") + "\n")
    (folder / "4.txt").write_text(some_text(20, seed=3))
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.fixture
def small_parts(monkeypatch):
    """Several buckets a shard, several runs, long documents cut: as in a large corpus."""
    monkeypatch.setattr(pretraining_build, "_BUCKET_BYTES", 1500)
    monkeypatch.setattr(spill, "_RUN_NUMBERS", 2000)
    monkeypatch.setattr(documents, "_BLOCK_CHARACTERS", 700)
    monkeypatch.setattr(documents, "MAX_PART_TOKENS", 150)


def build(texts, vocabulary, folder, options=None, runner=LocalRunner, **output):
    options = options or PretrainingOptions(max_seq_length=32, dupe_factor=3)
    return build_pretraining_data(
        texts, TokenizerSource(vocabulary), Output(str(folder), **output), options, runner
    )


def digests(folder):
    """Of all that is in `folder`, which has no folder in it: a finished build leaves none."""
    return {name: sha256(f"{folder}/{name}") for name in sorted(tf.io.gfile.listdir(str(folder)))}


MORE_OPTIONS = [
    {"dupe_factor": 1, "random_seed": 7, "max_seq_length": 64, "do_permutation": True},
    {"dupe_factor": 3},
    {"dupe_factor": 2, "sentence_objective": "none", "random_seed": 1},
    {"record_format": "compact"},
    {"dupe_factor": 2, "compat": "google_research"},
]


@pytest.mark.parametrize(
    "options",
    [
        {"dupe_factor": 2, "sentence_objective": "nsp"},
        {"record_format": "compact", "dupe_factor": 4, "random_seed": 3},
        *(pytest.param(options, marks=pytest.mark.slow) for options in MORE_OPTIONS),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_shards_and_manifest_are_those_of_the_local_runner(
    tmp_path, texts, vocabulary, small_parts, options
):
    options = PretrainingOptions(**{"max_seq_length": 32, **options})
    manifest = build(texts, vocabulary, tmp_path / "local", options, num_shards=4)
    assert manifest.statistics["corpus"]["long_document_cuts"] > 0
    assert build(texts, vocabulary, tmp_path / "beam", options, BeamRunner, num_shards=4)
    expected = digests(tmp_path / "local")
    assert len(expected) == 4 + len(["manifest.json", "tokenizer.json", "vocab.txt"])
    assert digests(tmp_path / "beam") == expected
    assert verify(find_records(str(tmp_path / "beam"), None)) == 0


def test_the_script_builds_the_same_with_both_runners(tmp_path, texts, vocabulary, run_script):
    for runner in ("local", "beam"):
        result = run_script(
            create_pretraining_data,
            f"--runner={runner}",
            f"--input_file={','.join(texts)}",
            f"--vocab_file={vocabulary}",
            f"--output_dir={tmp_path / runner}",
            "--max_seq_length=32",
            "--dupe_factor=2",
        )
        assert result.returncode == 0, result.stderr
        assert "instances in 10 shards" in result.stdout
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")
    assert "tokenize 5 files with Beam's DirectRunner" in result.stderr
    assert "apache_beam" not in result.stderr  # None of its logs.


def test_a_corpus_in_ram_is_built(vocabulary, texts):
    root = "ram://beam"
    for path in texts:
        tf.io.gfile.makedirs(f"{root}/texts")
        tf.io.gfile.copy(path, f"{root}/texts/{Path(path).name}", overwrite=True)
    there = sorted(tf.io.gfile.glob(f"{root}/texts/*"))
    build(there, vocabulary, f"{root}/beam", runner=BeamRunner)
    build(there, vocabulary, f"{root}/local")
    assert digests(f"{root}/beam") == digests(f"{root}/local")


# By default, a build that fails goes on, and tests/faults kills one of the local runner.
@pytest.mark.slow
def test_a_killed_build_keeps_its_shards_and_any_runner_goes_on(tmp_path, vocabulary):
    text = tmp_path / "text.txt"
    text.write_text(some_text(700))
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "data_prep.create_pretraining_data", "--runner=beam"),
            *(f"--input_file={text}", f"--vocab_file={vocabulary}", f"--output_dir={killed}"),
            *("--max_seq_length=32", "--dupe_factor=40"),
        ],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    notes = killed / "_build"
    deadline = time.monotonic() + 120
    while not list(notes.glob("*.tfrecord.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = [killed / note.stem for note in notes.glob("*.tfrecord.json")]
    assert 1 <= len(finished) < 10
    times = [path.stat().st_mtime_ns for path in finished]

    options = PretrainingOptions(max_seq_length=32, dupe_factor=40)
    with pytest.raises(AlbertError, match="unfinished build of another"):
        build([str(text)], vocabulary, killed, runner=BeamRunner)
    build([str(text)], vocabulary, killed, options)
    build([str(text)], vocabulary, tmp_path / "whole", options)
    assert digests(killed) == digests(tmp_path / "whole")
    assert [path.stat().st_mtime_ns for path in finished] == times


def test_a_build_stopped_by_a_failure_goes_on_with_beam(tmp_path, texts, vocabulary):
    blocked = tmp_path / "out" / "pretraining-00004-of-00010.tfrecord"
    (blocked / "inside").mkdir(parents=True)
    for runner in (LocalRunner, BeamRunner):
        with pytest.raises(AlbertError, match=r"pretraining-00004.* cannot be written: [^\[]*$"):
            build(texts, vocabulary, tmp_path / "out", runner=runner)
    first = tmp_path / "out" / "pretraining-00000-of-00010.tfrecord"
    written = first.stat().st_mtime_ns
    (blocked / "inside").rmdir()
    blocked.rmdir()
    build(texts, vocabulary, tmp_path / "out", runner=BeamRunner)
    build(texts, vocabulary, tmp_path / "whole")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    assert first.stat().st_mtime_ns == written


def test_a_failure_that_is_not_the_texts_keeps_them_tokenized(tmp_path, texts, vocabulary):
    build_folder = tmp_path / "out" / "_build"
    blocked = build_folder / "run-00001-00000.bin"
    (blocked / "inside").mkdir(parents=True)
    with pytest.raises(StoppedError, match=r"tokenize failed \(.*run-00001.*\); the same command"):
        build(texts, vocabulary, tmp_path / "out", runner=BeamRunner)
    tokenized = sorted(path.name for path in build_folder.glob("text-*.json"))
    assert tokenized == [f"text-0000{i}.json" for i in range(5)]
    (blocked / "inside").rmdir()
    blocked.rmdir()
    build(texts, vocabulary, tmp_path / "out", runner=BeamRunner)
    build(texts, vocabulary, tmp_path / "whole")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_a_workers_sentence_is_found_in_the_traceback_of_another_process():
    text = """Job failed: Error received from SDK harness: Traceback (most recent call last):
      File "text_files.py", line 90, in _decode
    albert_tf.errors.AlbertError: a.txt:2: not UTF-8; convert it.

    During handling of the above exception, another exception occurred:
    albert_tf.errors.AlbertError: a.txt:2: not UTF-8; convert it. [while running 'tokenize']

    """
    told = beam_runner._told(RuntimeError(text), "tokenize")
    assert type(told) is AlbertError
    assert str(told) == "a.txt:2: not UTF-8; convert it."
    told = beam_runner._told(RuntimeError("Traceback\nMemoryError: no"), "build")
    assert type(told) is StoppedError
    assert "build failed (MemoryError: no); the same command continues it." in str(told)


def test_a_finished_build_is_left_alone_and_another_is_refused(tmp_path, texts, vocabulary):
    first = build(texts, vocabulary, tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert build(texts, vocabulary, tmp_path / "out", runner=BeamRunner) == first
    other = PretrainingOptions(max_seq_length=32, dupe_factor=4)
    with pytest.raises(AlbertError, match="holds records of another"):
        build(texts, vocabulary, tmp_path / "out", other, BeamRunner)
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"w1 w2\nw3\ncaf\xe9\n", r"/bad.txt:3: not UTF-8 \(byte 0xe9\); [^\[]*$"),
        (b"w1 " * 400_000 + b"\n", r"/bad.txt:1: the line is longer than \d+ bytes; [^\[]*$"),
    ],
    ids=["latin-1", "long line"],
)
def test_bad_text_is_told_in_a_sentence_and_leaves_nothing(
    tmp_path, texts, vocabulary, caplog, content, message
):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(content)
    with pytest.raises(AlbertError, match=message):
        build([*texts, str(bad)], vocabulary, tmp_path / "out", runner=BeamRunner)
    assert not (tmp_path / "out").exists()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("content", "shards", "message"),
    [
        ("\n\n", None, "corpus is empty"),
        ("w1 w2\nw3\n\nw4 w5\nw6\n", 3, "2 documents is too small for 3 shards; .* at most 2"),
        ("w1 w2\n\nw3 w4\n", None, "gives no instance: 2 documents, 2 sentences"),
    ],
    ids=["empty", "too many shards", "single sentences"],
)
def test_too_little_text_is_told_and_leaves_nothing(tmp_path, vocabulary, content, shards, message):
    text = tmp_path / "text.txt"
    text.write_text(content)
    with pytest.raises(AlbertError, match=message):
        build([str(text)], vocabulary, tmp_path / "out", runner=BeamRunner, num_shards=shards)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam_options=--runner=DataflowRunner"], "Dataflow's workers do not see .*/out; give"),
        (["--beam_options=--runner=Donkey"], "--beam_options: Unexpected pipeline runner: Donkey"),
        (["--beam_options=--direct_num_workers=x"], "argument --direct_num_workers: invalid int"),
        (["--beam_options='--runner"], "--beam_options is not a command line: No closing"),
        (["--num_workers=2"], "--num_workers goes with --runner=local"),
        (["--runner=local", "--beam_options="], "--beam_options goes with --runner=beam"),
    ],
)
def test_wrong_options_are_told_before_anything_is_made(
    tmp_path, texts, vocabulary, run_script, arguments, message
):
    result = run_script(
        create_pretraining_data,
        "--runner=beam",
        f"--input_file={texts[0]}",
        f"--vocab_file={vocabulary}",
        f"--output_dir={tmp_path / 'out'}",
        *arguments,
    )
    assert result.returncode == 1
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("error: ")
    assert re.search(message, sentence)
    assert not (tmp_path / "out").exists()


def test_beam_that_is_not_installed_is_asked_for(
    tmp_path, texts, vocabulary, run_script, monkeypatch
):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "data_prep.beam_runner")
    arguments = [f"--input_file={texts[0]}", f"--vocab_file={vocabulary}", "--dupe_factor=1"]
    for runner in ("local", "beam"):
        result = run_script(
            create_pretraining_data,
            f"--runner={runner}",
            f"--output_dir={tmp_path / runner}",
            *arguments,
        )
        assert result.returncode == (runner == "beam")
    assert "pip install apache-beam" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_workers_in_other_processes_build_the_same(tmp_path, texts, vocabulary):
    runner = functools.partial(BeamRunner, arguments=TWO_PROCESSES)
    build(texts, vocabulary, tmp_path / "beam", runner=runner)
    build(texts, vocabulary, tmp_path / "local")
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")


@pytest.mark.slow
def test_a_worker_that_does_not_share_the_file_system_says_so(texts, vocabulary):
    # What one process has under ram:// is not there in another, as with disks of two machines.
    runner = functools.partial(BeamRunner, arguments=TWO_PROCESSES)
    with pytest.raises(
        AlbertError, match=r"The worker on .* does not see ram://own/out/_build; all"
    ):
        build(texts, vocabulary, "ram://own/out", runner=runner)
