# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The builder from text to records: determinism, resume, errors, statistics, memory."""

import dataclasses
import functools
import gzip
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.files import sha256
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep import create_pretraining_data, pretraining_build, spill
from data_prep.create_pretraining_data import describe
from data_prep.local_runner import LocalRunner
from data_prep.pretraining_build import Output, TokenizerSource, build_pretraining_data
from data_prep.pretraining_options import PretrainingOptions
from data_prep.record_files import find_records
from data_prep.verify_records import verify

ROOT = pathlib.Path(__file__).parent.parent.parent
DATA = pathlib.Path(os.environ.get("ALBERT_DATA_DIR", ROOT.parent / "shared" / "data"))
WORDS = [f"w{i}" for i in range(200)]
SMALL = PretrainingOptions(max_seq_length=32, dupe_factor=3)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##x", "##y"]))
    return str(path)


def some_text(documents=40, sentences=12, seed=0):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        for _ in range(rng.integers(2, sentences)):
            words = rng.choice(WORDS, rng.integers(3, 9))
            suffixes = rng.choice(["", "", "x", "xy"], len(words))
            lines.append(" ".join(w + s for w, s in zip(words, suffixes)))
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(some_text())
    return str(path)


def build(text, vocabulary, folder, options=SMALL, **arguments):
    workers, overwrite = arguments.pop("num_workers", 1), arguments.pop("overwrite", False)
    output = Output(str(folder), **arguments)
    runner = functools.partial(LocalRunner, num_workers=workers)
    source = TokenizerSource(vocabulary)
    return build_pretraining_data([text], source, output, options, runner, overwrite)


def digests(folder):
    return {p.name: sha256(str(p)) for p in sorted(pathlib.Path(folder).iterdir()) if p.is_file()}


def read_all(folder):
    found = find_records(str(folder), None)
    examples = [e for path in found.paths for e in records.read_examples(path)]
    parsed = records.parse_columns(tf.constant(examples), found.features)
    return {name: value.numpy() for name, value in parsed.items()}


def test_records_pass_verification_and_the_manifest_describes_them(tmp_path, text, vocabulary):
    manifest = build(text, vocabulary, tmp_path / "out", num_shards=3)
    assert verify(find_records(str(tmp_path / "out"), None)) == 0
    assert Manifest.load(str(tmp_path / "out")) == manifest
    columns = read_all(tmp_path / "out")
    statistics = manifest.statistics
    assert len(columns["input_ids"]) == manifest.num_examples == statistics["instances"]
    masked = (columns["masked_lm_weights"] > 0).sum()
    assert masked == statistics["masked_tokens"]
    assert masked / columns["input_mask"].sum() == pytest.approx(
        statistics["masked_share"], abs=1e-5
    )
    assert columns["input_mask"].mean() == pytest.approx(statistics["fill_ratio"], abs=1e-5)
    assert columns["next_sentence_labels"].mean() == pytest.approx(
        statistics["label_1_share"], abs=1e-5
    )
    assert statistics["corpus"]["documents"] == 40
    assert manifest.options["dupe_factor"] == 3
    assert manifest.features["masked_lm_ids"].shape == (5,)
    assert manifest.tokenizer["sha256"] == sha256(vocabulary)
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).vocab_size == 207
    # Nothing but the three shards, the manifest, the vocabulary and its specification is left.
    assert len(list((tmp_path / "out").iterdir())) == 6
    assert "label_1_share" in describe(statistics)


def test_sequences_are_text_of_the_corpus_with_their_boundaries(tmp_path, text, vocabulary):
    build(text, vocabulary, tmp_path / "out")
    columns = read_all(tmp_path / "out")
    tokenizer = Tokenizer.from_file(vocabulary)
    encoded = itertools.chain.from_iterable(tokenizer.encode_batch(some_text().split("\n")))
    corpus = " ".join(map(str, encoded))
    for row in range(200):
        ids = columns["input_ids"][row].copy()
        used = columns["masked_lm_weights"][row] > 0
        ids[columns["masked_lm_positions"][row][used]] = columns["masked_lm_ids"][row][used]
        length = columns["input_mask"][row].sum()
        cls, *body, sep = ids[:length].tolist()
        assert (cls, sep) == (2, 3)
        middle = body.index(3)
        a, b = body[:middle], body[middle + 1 :]
        assert columns["segment_ids"][row][:length].tolist() == [0] * (len(a) + 2) + [1] * (
            len(b) + 1
        )
        for segment in (a, b):
            assert " ".join(map(str, segment)) in corpus
            assert tokenizer.word_starts[segment[0]]
        boundary = columns["token_boundary"][row]
        expected = [*tokenizer.word_starts[ids[:length]].astype(int), *([0] * (32 - length))]
        assert boundary.tolist() == expected


def test_the_number_of_workers_changes_nothing(tmp_path, vocabulary, monkeypatch):
    monkeypatch.setattr(spill, "_RUN_NUMBERS", 2000)
    monkeypatch.setattr(pretraining_build, "_BUCKET_BYTES", 2000)
    path = tmp_path / "text.txt"
    path.write_text(some_text(300))
    options = PretrainingOptions(max_seq_length=32, dupe_factor=2, sentence_objective="nsp")
    one = build(str(path), vocabulary, tmp_path / "one", options)
    build(str(path), vocabulary, tmp_path / "two", options, num_workers=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(one.shards) == 10
    other = PretrainingOptions(
        max_seq_length=32, dupe_factor=2, sentence_objective="nsp", random_seed=1
    )
    three = build(str(path), vocabulary, tmp_path / "three", other)
    assert three.fingerprint() != one.fingerprint()


def test_the_passes_over_the_corpus_differ(tmp_path, text, vocabulary):
    build(text, vocabulary, tmp_path / "out")
    columns = read_all(tmp_path / "out")
    assert len(np.unique(columns["input_ids"], axis=0)) > 0.98 * len(columns["input_ids"])


def test_a_build_beside_another_one_is_refused_and_reading_what_is_complete_is_not(
    tmp_path, text, vocabulary, hold
):
    refused = pytest.raises(AlbertError, match=f"^{tmp_path}/out is in use: process ")
    with hold(tmp_path / "out"), refused:
        build(text, vocabulary, tmp_path / "out")
    assert not (tmp_path / "out/_build").exists()
    manifest = build(text, vocabulary, tmp_path / "out")
    with hold(tmp_path / "out"):
        assert build(text, vocabulary, tmp_path / "out") == manifest


@pytest.mark.parametrize(
    "name", ["pretraining-00001-of-00002.tfrecord", "tokenizer.json", "vocab.txt"]
)
def test_files_of_others_are_not_built_over(tmp_path, text, vocabulary, name):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_text("{}")
    with pytest.raises(AlbertError, match=f"{name} already exists; .* set `overwrite`"):
        build(text, vocabulary, folder, num_shards=2)
    assert os.listdir(folder) == [name] and (folder / name).read_text() == "{}"
    build(text, vocabulary, folder, num_shards=2, overwrite=True)
    assert verify(find_records(str(folder), None)) == 0


def test_no_input_is_built_over(tmp_path, text, vocabulary):
    for overwrite in (False, True):
        with pytest.raises(AlbertError, match=r"text\.txt is also an input; give another path"):
            build(text, vocabulary, tmp_path, names=["a", "text.txt"], overwrite=overwrite)
    assert os.listdir(tmp_path) == ["text.txt"]
    # A shard of another build, such as one of a file that has been replaced since.
    build(text, vocabulary, tmp_path, names=["a", "b"])
    (tmp_path / "b").write_text(some_text(seed=1))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(AlbertError, match="/b is also an input"):
        build(f"{tmp_path}/b", vocabulary, tmp_path, names=["c"], overwrite=True)
    assert sorted(os.listdir(tmp_path)) == before


def test_overwriting_leaves_nothing_of_the_other_build(tmp_path, text, vocabulary, monkeypatch):
    other = dataclasses.replace(SMALL, random_seed=1)
    build(text, vocabulary, tmp_path / "expected", other, num_shards=2)
    build(text, vocabulary, tmp_path / "finished", num_shards=3)

    def fail(*_):
        raise StoppedError("killed")

    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(pretraining_build, "_manifest", fail)
        build(text, vocabulary, tmp_path / "begun", num_shards=3)
    for name in ("finished", "begun"):
        with pytest.raises(AlbertError, match="set --overwrite"):
            build(text, vocabulary, tmp_path / name, other, num_shards=2)
        build(text, vocabulary, tmp_path / name, other, num_shards=2, overwrite=True)
        assert digests(tmp_path / name) == digests(tmp_path / "expected")
        # Complete, it is left alone, also by the command that says overwrite.
        before = (tmp_path / name / "manifest.json").stat().st_mtime_ns
        build(text, vocabulary, tmp_path / name, other, num_shards=2, overwrite=True)
        assert (tmp_path / name / "manifest.json").stat().st_mtime_ns == before


def test_a_build_that_was_killed_at_the_very_end_is_cleared_away(tmp_path, text, vocabulary):
    manifest = build(text, vocabulary, tmp_path / "out")
    expected = digests(tmp_path / "out")
    (tmp_path / "out/_build").mkdir()
    (tmp_path / "out/_build/run-00000-00000.bin").touch()
    assert build(text, vocabulary, tmp_path / "out") == manifest
    assert not (tmp_path / "out/_build").exists()
    assert digests(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_killed_build_goes_on_with_the_missing_shards(tmp_path, vocabulary):
    path = tmp_path / "text.txt"
    path.write_text(some_text(700))
    arguments = [
        f"--input_file={path}",
        f"--vocab_file={vocabulary}",
        f"--output_dir={tmp_path / 'killed'}",
        "--max_seq_length=32",
        "--dupe_factor=40",
        "--num_workers=2",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "data_prep.create_pretraining_data", *arguments],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    notes = tmp_path / "killed" / "_build"
    deadline = time.monotonic() + 120
    while not list(notes.glob("*.tfrecord.json")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {
        json.loads(note.read_text())["shard"]["name"] for note in notes.glob("*.tfrecord.json")
    }
    assert 1 <= len(finished) < 10
    times = {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in finished}
    assert not (tmp_path / "killed" / "manifest.json").exists()

    options = PretrainingOptions(max_seq_length=32, dupe_factor=40)
    with pytest.raises(AlbertError, match="unfinished build of another"):
        build(str(path), vocabulary, tmp_path / "killed", SMALL)
    build(str(path), vocabulary, tmp_path / "killed", options)
    build(str(path), vocabulary, tmp_path / "whole", options)
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    for name, modified in times.items():
        assert (tmp_path / "killed" / name).stat().st_mtime_ns == modified


def test_a_finished_build_is_left_alone_and_another_is_refused(tmp_path, text, vocabulary):
    first = build(text, vocabulary, tmp_path / "out")
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    assert build(text, vocabulary, tmp_path / "out") == first
    assert times == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    other = PretrainingOptions(max_seq_length=32, dupe_factor=4)
    with pytest.raises(AlbertError, match="holds records of another"):
        build(text, vocabulary, tmp_path / "out", other)
    assert times == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}


def test_records_of_an_older_builder_are_not_taken_for_the_wanted_ones(
    tmp_path, text, vocabulary, monkeypatch
):
    manifest = build(text, vocabulary, tmp_path / "out")
    shards = [dataclasses.replace(shard, sections=()) for shard in manifest.shards]
    old = dataclasses.replace(manifest, shards=shards, builder_version=1)
    old.save(str(tmp_path / "out"))
    expected = digests(tmp_path / "out")
    # A small corpus is well mixed and needs no new build.
    assert build(text, vocabulary, tmp_path / "out") == old
    monkeypatch.setattr("albert_tf.data.manifest._BUCKET_TOKENS", 10)
    with pytest.raises(AlbertError, match="version 1 of the builder"):
        build(text, vocabulary, tmp_path / "out")
    assert digests(tmp_path / "out") == expected
    monkeypatch.undo()
    assert build(text, vocabulary, tmp_path / "out", overwrite=True) == old
    monkeypatch.setattr("albert_tf.data.manifest._BUCKET_TOKENS", 10)
    assert build(text, vocabulary, tmp_path / "out", overwrite=True) == manifest


def test_an_unfinished_build_of_an_older_builder_is_not_continued(tmp_path, text, vocabulary):
    blocked = tmp_path / "out" / "pretraining-00004-of-00010.tfrecord"
    (blocked / "inside").mkdir(parents=True)
    with pytest.raises(AlbertError, match="cannot be written"):
        build(text, vocabulary, tmp_path / "out")
    plan = tmp_path / "out/_build/plan.json"
    values = json.loads(plan.read_text())
    del values["builder_version"]
    plan.write_text(json.dumps(values))
    with pytest.raises(AlbertError, match=r"unfinished build of another .* or version"):
        build(text, vocabulary, tmp_path / "out")


def test_a_damaged_finished_build_is_built_again(tmp_path, text, vocabulary):
    build(text, vocabulary, tmp_path / "out")
    expected = digests(tmp_path / "out")
    next((tmp_path / "out").glob("*.tfrecord")).unlink()
    build(text, vocabulary, tmp_path / "out")
    assert digests(tmp_path / "out") == expected


def test_a_failure_while_shards_are_written_is_told(tmp_path, text, vocabulary):
    # A folder stands where a shard should go.
    blocked = tmp_path / "out" / "pretraining-00004-of-00010.tfrecord"
    (blocked / "inside").mkdir(parents=True)
    with pytest.raises(AlbertError, match=r"pretraining-00004.* cannot be written"):
        build(text, vocabulary, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    (blocked / "inside").rmdir()
    blocked.rmdir()
    build(text, vocabulary, tmp_path / "out")
    assert verify(find_records(str(tmp_path / "out"), None)) == 0


def write_bad_text(path, kind):
    good = some_text(5).encode()
    if kind == "truncated":
        path.write_bytes(gzip.compress(good * 50)[:-200])
    else:
        path.write_bytes(
            {
                "empty": b"",
                "blank": b"\n \n\n",
                "latin": good + b"caf\xe9\n",
                "nul": good + b"a\0b\n",
                "long": good + b"w1 " * 3_500_000 + b"\n",
                "single": b"w1 w2\n\nw3 w4\n",
            }[kind]
        )


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "corpus is empty"),
        ("blank", "corpus is empty"),
        ("latin", r"text.txt:\d+: not UTF-8"),
        ("nul", r"text.txt:\d+: a NUL byte"),
        ("long", r"text.txt:\d+: the line is longer"),
        ("single", "gives no instance: 2 documents, 2 sentences"),
        ("truncated", "text.txt.gz is truncated"),
    ],
)
def test_bad_text_is_told_and_leaves_nothing(tmp_path, vocabulary, kind, message):
    path = tmp_path / ("text.txt.gz" if kind == "truncated" else "text.txt")
    write_bad_text(path, kind)
    with pytest.raises(AlbertError, match=message):
        build(str(path), vocabulary, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_crlf_and_compressed_text_give_the_same_records(tmp_path, text, vocabulary):
    expected = build(text, vocabulary, tmp_path / "out").fingerprint()
    crlf = tmp_path / "crlf.txt"
    crlf.write_bytes(some_text().replace("\n", "\r\n").encode())
    assert build(str(crlf), vocabulary, tmp_path / "crlf").fingerprint() == expected
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(some_text().encode()))
    assert build(str(packed), vocabulary, tmp_path / "packed").fingerprint() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output_dir=out"], "No input file matches 'absent.txt'"),
        (["--output_dir=out", "--sentence_objective=rhyme"], "sentence_objective"),
        ([], "Give either --output_dir or --output_file"),
        (["--output_file=a/x,b/x"], "lie in one folder"),
        (["--output_dir=out", "--max_seq_length=4"], "--max_seq_length is 4; the least is 8"),
    ],
)
def test_the_script_tells_bad_arguments_in_a_sentence(run_script, arguments, message, vocabulary):
    given = "--input_file=absent.txt", f"--vocab_file={vocabulary}", *arguments
    result = run_script(create_pretraining_data, *given)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_script_writes_the_files_of_output_file(run_script, tmp_path, text, vocabulary):
    paths = f"{tmp_path}/out/a.tfrecord,{tmp_path}/out/b.tfrecord"
    result = run_script(
        create_pretraining_data,
        f"--input_file={text}",
        f"--vocab_file={vocabulary}",
        f"--output_file={paths}",
        "--max_seq_length=32",
        "--dupe_factor=1",
    )
    assert result.returncode == 0, result.stderr
    assert "in 2 shards" in result.stdout
    assert "masked_share" in result.stdout
    assert "Warning" not in result.stderr
    names = [shard.name for shard in Manifest.load(str(tmp_path / "out")).shards]
    assert names == ["a.tfrecord", "b.tfrecord"]


def test_too_many_shards_for_the_corpus_are_refused(tmp_path, vocabulary):
    path = tmp_path / "text.txt"
    path.write_text(some_text(3))
    with pytest.raises(AlbertError, match="3 documents is too small for 5 shards"):
        build(str(path), vocabulary, tmp_path / "out", num_shards=5)
    assert not (tmp_path / "out").exists()
    assert len(build(str(path), vocabulary, tmp_path / "out").shards) == 3


def test_a_wrong_vocabulary_is_refused(tmp_path, text):
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\n")
    with pytest.raises(AlbertError, match="lacks"):
        build(text, str(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_strict_records_have_no_special_random_piece_and_compat_ones_do(tmp_path, text, vocabulary):
    specials = {}
    for compat in (None, "google_research"):
        options = PretrainingOptions(max_seq_length=32, dupe_factor=20, compat=compat)
        build(text, vocabulary, tmp_path / str(compat), options)
        columns = read_all(tmp_path / str(compat))
        used = columns["masked_lm_weights"] > 0
        put = np.take_along_axis(columns["input_ids"], columns["masked_lm_positions"], axis=1)
        specials[compat] = np.isin(put[used], [0, 1, 2, 3]).sum()
    assert specials[None] == 0
    assert specials["google_research"] > 0


@pytest.mark.parametrize("objective", ["nsp", "none"])
def test_other_objectives_give_valid_records(tmp_path, text, vocabulary, objective):
    options = PretrainingOptions(max_seq_length=32, dupe_factor=2, sentence_objective=objective)
    build(text, vocabulary, tmp_path / "out", options)
    assert verify(find_records(str(tmp_path / "out"), None)) == 0
    columns = read_all(tmp_path / "out")
    separators = (columns["input_ids"] == 3).sum(axis=1)
    assert (separators == (1 if objective == "none" else 2)).all()
    assert columns["segment_ids"].any() == (objective == "nsp")
    assert columns["next_sentence_labels"].any() == (objective == "nsp")


def test_the_script_warns_of_too_few_predictions_and_masks_no_more(
    run_script, tmp_path, text, vocabulary
):
    result = run_script(
        create_pretraining_data,
        f"--input_file={text}",
        f"--vocab_file={vocabulary}",
        f"--output_dir={tmp_path}/out",
        "--max_seq_length=32",
        "--max_predictions_per_seq=2",
        "--dupe_factor=1",
    )
    assert result.returncode == 0, result.stderr
    assert "Warning: --max_predictions_per_seq=2 leaves 6.2% of an instance of 32" in result.stderr
    assert Manifest.load(str(tmp_path / "out")).statistics["masked_share"] < 0.1


def real_text(tmp_path, num_bytes):
    source = DATA / "text" / "books_62mb.txt.gz"
    if not source.exists():
        pytest.skip(f"needs {source}")
    path = tmp_path / "books.txt"
    with gzip.open(source, "rb") as f:
        path.write_bytes(f.read(num_bytes).rpartition(b"\n")[0] + b"\n")
    return str(path)


@pytest.mark.realdata
def test_real_text_is_masked_as_the_official_builder_masks_it(tmp_path):
    text = real_text(tmp_path, 1_000_000)
    model = str(DATA / "spm" / "30k-clean.model")
    shares = {512: (0.575, 0.263, 0.162), 128: (0.600, 0.257, 0.143)}
    for length, expected in shares.items():
        options = PretrainingOptions(max_seq_length=length, dupe_factor=2, compat="google_research")
        manifest = build(text, model, tmp_path / f"compat{length}", options)
        found = list(manifest.statistics["span_words"].values())
        np.testing.assert_allclose(found, expected, atol=0.01)
    manifest = build(text, model, tmp_path / "strict", PretrainingOptions(dupe_factor=2))
    statistics = manifest.statistics
    assert statistics["masked_share"] == pytest.approx(0.15, abs=0.003)
    assert statistics["masked_as"]["mask"] == pytest.approx(0.8, abs=0.005)
    assert statistics["masked_as"]["random"] == pytest.approx(0.1, abs=0.005)
    assert verify(find_records(str(tmp_path / "strict"), None)) == 0


PEAK = """
import resource, sys
from data_prep.pretraining_build import Output, TokenizerSource, build_pretraining_data
from data_prep.pretraining_options import PretrainingOptions
text, model, folder = sys.argv[1:]
options = PretrainingOptions(max_seq_length=128, dupe_factor=1)
build_pretraining_data([text], TokenizerSource(model), Output(folder), options)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.realdata
def test_ten_times_the_text_takes_no_more_than_a_third_more_memory(tmp_path):
    model = str(DATA / "spm" / "30k-clean.model")
    peaks = []
    for megabytes in (6, 60):
        text = real_text(tmp_path, megabytes * 1_000_000)
        result = subprocess.run(
            [sys.executable, "-c", PEAK, text, model, str(tmp_path / f"out{megabytes}")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(result.stdout))
    assert peaks[1] < 1.3 * peaks[0]
