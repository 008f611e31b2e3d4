# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Opening pretraining records: what is refused, and why."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining.data import check_held_out, open_records
from tests.support.small_tasks import PIECES, open_small_task


@pytest.mark.parametrize(
    ("vocab_size", "expected", "sentence"),
    [
        (61, {}, "use a vocabulary of 61 pieces, but the model has vocab_size=60"),
        (60, {"max_seq_length": 32}, "have max_seq_length=24, not 32; leave out `max_seq_length`"),
    ],
)
def test_records_of_another_vocabulary_or_length_are_refused(
    write_records, config, vocab_size, expected, sentence
):
    path = write_records(4, vocab_size)
    with pytest.raises(AlbertError, match=sentence):
        open_records(path, config, **(expected or {}))


def test_records_longer_than_the_model_are_refused(write_records, config):
    config = dataclasses.replace(config, max_position_embeddings=16)
    with pytest.raises(
        AlbertError, match="`max_seq_length`=24 exceeds the model's max_position_embeddings=16"
    ):
        open_records(write_records(4), config)


@pytest.mark.parametrize(
    ("examples", "sentence"),
    [
        ([tf.train.Example().SerializeToString()], "records; build them with albert create-"),
        ([], "holds no examples"),
    ],
)
def test_other_and_empty_files_without_manifest_are_refused(tmp_path, config, examples, sentence):
    path = str(tmp_path / "other")
    records.write_shard(path, examples)
    with pytest.raises(AlbertError, match=sentence):
        open_records(path, config)


@pytest.fixture(scope="module")
def compact(tmp_path_factory, config):
    """A folder of compact records, and the configuration of a model for them."""
    folder = tmp_path_factory.mktemp("compact")
    config = dataclasses.replace(config, vocab_size=len(PIECES))
    open_small_task("compact", config, folder)
    return folder / "compact-16/records", config


@pytest.mark.parametrize(
    ("part", "changes", "sentence"),
    [
        ("options", {"ngram": None}, "are not valid: .*'ngram' must be of type int, not None"),
        ("options", {"max_predictions_per_seq": None}, "=None must be an integer from 1 to 16"),
        ("options", {"masked_lm_prob": 2.0}, "are not valid: `masked_lm_prob`=2.0 must be"),
        (
            "options",
            {"ngram": 65536},
            "are not valid: `ngram`=65536 must be an integer from 1 to 16",
        ),
        ("options", {"ngram": "3"}, "are not valid: .*'ngram' must be of type int"),
        ("options", {"max_predictions_per_seq": 65536}, "=65536 must be an integer from 1 to 16"),
        ("tokenizer", {"vocab_size": None}, "no valid vocab_size of the tokenizer"),
        ("tokenizer", {"sha256": "0"}, "is not the tokenizer of these records"),
        ("features", {"word_starts": None}, "is not that of compact records"),
    ],
)
def test_compact_records_with_a_changed_manifest_are_refused(
    compact, tmp_path, part, changes, sentence
):
    records_folder, config = compact
    folder = shutil.copytree(records_folder, tmp_path / "records")
    value = json.loads((folder / "manifest.json").read_text())
    changed = {**value[part], **changes}
    value[part] = {name: entry for name, entry in changed.items() if entry is not None}
    (folder / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(AlbertError, match=sentence):
        open_records(str(folder), config)


def test_compact_records_are_read_at_shorter_lengths_and_not_at_longer_ones(compact):
    folder, config = compact
    whole = open_records(str(folder), config)
    short = open_records(str(folder), config, max_seq_length=12)
    batch = next(iter(short.train_input_fn(InputContext(8))))
    assert batch["input_word_ids"].shape == (8, 12)
    assert batch["masked_lm_ids"].shape[1] < whole.masking.options.max_predictions_per_seq
    assert short.fingerprint != whole.fingerprint
    # Positions are needed for the length that is read.
    few = dataclasses.replace(config, max_position_embeddings=12)
    open_records(str(folder), few, max_seq_length=12)
    with pytest.raises(AlbertError, match=r"have max_seq_length=[0-9]+, not 1024"):
        open_records(str(folder), config, max_seq_length=1024)


def test_another_share_of_compact_records_can_be_masked(compact):
    folder, config = compact
    source = open_records(str(folder), config, max_seq_length=12, masked_lm_prob=0.5)
    batch = next(iter(source.train_input_fn(InputContext(8))))
    tokens = batch["input_mask"].numpy().sum(axis=1)
    masked = batch["masked_lm_weights"].numpy().sum(axis=1)
    assert masked.max() <= 6
    # A span that would exceed the share is left out, so some sequences have a little less.
    assert 0.4 < masked.sum() / tokens.sum() <= 0.5
    built = open_records(str(folder), config)
    assert open_records(str(folder), config, masked_lm_prob=0.5).fingerprint != built.fingerprint


@pytest.mark.parametrize("option", [{"masked_lm_prob": 0.4}, {"ngram": 1}])
def test_masks_of_masked_records_cannot_be_changed(write_records, config, option):
    sentence = f"masked already, so `{next(iter(option))}` cannot be changed"
    with pytest.raises(AlbertError, match=sentence):
        open_records(write_records(4), config, **option)


def test_compact_records_need_their_tokenizer(compact, tmp_path):
    records_folder, config = compact
    folder = shutil.copytree(records_folder, tmp_path / "records")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(AlbertError, match=r"tokenizer\.json does not exist"):
        open_records(str(folder), config)


def test_held_out_records_are_the_same_in_any_order(write_records, config, tmp_path):
    folders = []
    for examples in (4, 6):
        path = Path(write_records(examples))
        folders.append(tmp_path / str(examples))
        folders[-1].mkdir()
        for name in (path.name, "manifest.json"):
            shutil.move(path.parent / name, folders[-1])
    orders = [",".join(map(str, order)) for order in (folders, folders[::-1])]
    held_out = [open_records(order, config, held_out=True) for order in orders]
    assert held_out[0].fingerprint == held_out[1].fingerprint
    train = [open_records(order, config).fingerprint for order in orders]
    assert train[0] != train[1]


def test_a_shard_for_both_training_and_evaluation_is_refused(write_records, tmp_path):
    path = write_records(4)
    (tmp_path / "link").symlink_to(path)
    shutil.copytree(tmp_path, tmp_path / "copy", symlinks=True)
    others = (str(tmp_path / name) for name in ("link", "copy"))
    for same in (path, f"{tmp_path}/../{tmp_path.name}/{Path(path).name}", *others):
        with pytest.raises(AlbertError, match="is in `input_file` and in `eval_input_file`"):
            check_held_out(str(tmp_path), same)
