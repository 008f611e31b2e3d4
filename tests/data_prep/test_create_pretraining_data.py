# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""create_pretraining_data: the content of the records, the script, statistics, memory."""

import itertools
import pathlib
import subprocess
import sys

import pytest

from albert_tf.data.manifest import Manifest
from albert_tf.data_prep import create_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.verify_records import find_records, verify
from albert_tf.io.files import sha256
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.corpora import VOCAB_SIZE, build, corpus, read_columns, unmasked_ids

ROOT = pathlib.Path(__file__).parents[2]


def test_records_pass_verification_and_the_manifest_describes_them(tmp_path, text, vocabulary):
    folder = tmp_path / "out"
    manifest = build(text, vocabulary, folder, num_shards=3)
    assert verify(find_records(str(folder))) == 0
    assert Manifest.load(str(folder)) == manifest
    columns, statistics = read_columns(folder), manifest.statistics
    assert len(columns["input_ids"]) == manifest.num_examples == statistics["instances"]
    masked = (columns["masked_lm_weights"] > 0).sum()
    assert masked == statistics["masked_tokens"]
    for name, expected in (
        ("masked_share", masked / columns["input_mask"].sum()),
        ("fill_ratio", columns["input_mask"].mean()),
        ("label_1_share", columns["next_sentence_labels"].mean()),
    ):
        assert statistics[name] == pytest.approx(expected, abs=1e-5)
    assert statistics["corpus"]["documents"] == 40
    assert manifest.options["dupe_factor"] == 3
    assert manifest.features["masked_lm_ids"].shape == (5,)
    assert manifest.tokenizer["sha256"] == sha256(vocabulary)
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).vocab_size == VOCAB_SIZE
    # Only the three shards, the manifest, the vocabulary and its specification are left.
    assert len(list(folder.iterdir())) == 6


def test_sequences_are_text_of_the_corpus_with_word_boundaries(tmp_path, text, vocabulary):
    build(text, vocabulary, tmp_path)
    columns = read_columns(tmp_path)
    tokenizer = Tokenizer.from_file(vocabulary)
    encoded = itertools.chain.from_iterable(tokenizer.encode_batch(corpus().split("\n")))
    corpus_ids = " ".join(map(str, encoded))
    for row, ids in enumerate(unmasked_ids(columns)[:200]):
        length = columns["input_mask"][row].sum()
        cls, *body, sep = ids[:length].tolist()
        assert (cls, sep) == (2, 3)
        middle = body.index(3)
        a, b = body[:middle], body[middle + 1 :]
        segment_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert columns["segment_ids"][row][:length].tolist() == segment_ids
        for segment in (a, b):
            assert " ".join(map(str, segment)) in corpus_ids
            assert tokenizer.word_starts[segment[0]]
        starts = [*tokenizer.word_starts[ids[:length]].astype(int), *([0] * (32 - length))]
        assert columns["token_boundary"][row].tolist() == starts


@pytest.mark.parametrize("objective", ["nsp", "none"])
def test_other_objectives_give_valid_records(tmp_path, text, vocabulary, objective):
    options = PretrainingOptions(max_seq_length=32, dupe_factor=2, sentence_objective=objective)
    build(text, vocabulary, tmp_path, options)
    assert verify(find_records(str(tmp_path))) == 0
    columns = read_columns(tmp_path)
    separators = (columns["input_ids"] == 3).sum(axis=1)
    assert (separators == (1 if objective == "none" else 2)).all()
    assert columns["segment_ids"].any() == (objective == "nsp")
    assert columns["next_sentence_labels"].any() == (objective == "nsp")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output_dir=out"], "No input file matches 'absent.txt'"),
        (["--output_dir=out", "--sentence_objective=rhyme"], "sentence_objective"),
        (["--output_dir=out", "--max_seq_length=4"], "--max_seq_length=4 must be an integer from"),
    ],
)
def test_bad_arguments_are_reported_in_a_sentence(run_script, arguments, message, vocabulary):
    given = "--input_file=absent.txt", f"--vocab_file={vocabulary}", *arguments
    result = run_script(create_pretraining_data, *given)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.realdata
def test_the_asked_share_of_real_text_is_masked(tmp_path, real_text, real_model):
    text = real_text(1_000_000)
    for length in (512, 128):
        options = PretrainingOptions(max_seq_length=length, dupe_factor=2)
        manifest = build(text, real_model, tmp_path / str(length), options)
        statistics = manifest.statistics
        assert statistics["masked_share"] == pytest.approx(0.15, abs=0.003)
        assert verify(find_records(str(tmp_path / str(length)))) == 0


PEAK = """
import resource, sys
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.data_prep.pretraining_build import build_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
text, model, folder = sys.argv[1:]
options = PretrainingOptions(max_seq_length=128, dupe_factor=1)
build_pretraining_data([text], Tokenizer.from_file(model), folder, options)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.realdata
def test_ten_times_the_text_takes_no_more_than_a_third_more_memory(tmp_path, real_text, real_model):
    peaks = []
    for megabytes in (6, 60):
        text = real_text(megabytes * 1_000_000)
        result = subprocess.run(
            [sys.executable, "-c", PEAK, text, real_model, str(tmp_path / f"out{megabytes}")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(result.stdout))
    assert peaks[1] < 1.3 * peaks[0]
