# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Masks of a stream of compact records: a function of seed and position, new in each epoch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.masking import Masking, MaskingOptions
from albert_tf.data.pipeline import RecordSource
from tests.support.cases import slow
from tests.support.numbered_text import FIRST_TEXT_ID, VOCAB, Text, numbered_tokenizer

LENGTH, EXAMPLES = 32, 300


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return numbered_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def source(tokenizer, tmp_path_factory):
    text = Text.random(EXAMPLES, np.random.default_rng(4), LENGTH - 3)
    for i, ids in enumerate(text.ids):  # The first two pieces identify the record.
        ids[:2] = FIRST_TEXT_ID + i // 60, FIRST_TEXT_ID + i % 60
    paths = [str(tmp_path_factory.mktemp("shards") / "shard") for _ in range(3)]
    for i, path in enumerate(paths):
        records.write_shard(path, text.serialized(LENGTH)[i::3])
    features = records.compact_features(LENGTH, VOCAB)
    masking = Masking(features, MaskingOptions(5), tokenizer, swap=True)
    return RecordSource(paths, features, seed=7, masking=masking)


def take(dataset, batches):
    """Returns the first batches, joined, as arrays."""
    return joined(list(dataset.take(batches)))


def joined(batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@pytest.fixture(scope="module")
def stream(source):
    """Three epochs, 75 steps of 12 examples."""
    return take(source.train_input_fn(InputContext(12)), 75)


@pytest.mark.parametrize("start", [40, *slow(1)])
def test_masks_do_not_depend_on_the_step_at_which_training_starts(source, stream, start):
    tail = take(source.train_input_fn(InputContext(12, start)), 75 - start)
    np.testing.assert_equal(tail, {name: value[12 * start :] for name, value in stream.items()})


def test_masks_do_not_depend_on_the_number_of_pipelines(source, stream):
    for index in range(3):
        part = take(source.train_input_fn(InputContext(12, 0, 3, index)), 30)
        rows = np.arange(360).reshape(30, 3, 4)[:, index].ravel()
        np.testing.assert_equal(part, {name: value[rows] for name, value in stream.items()})


def original(columns):
    """Returns the unmasked segments of each row in the order of the text, as a tuple of ids."""
    ids = columns["input_word_ids"].copy()
    used = columns["masked_lm_weights"] > 0
    ids[np.nonzero(used)[0], columns["masked_lm_positions"][used]] = columns["masked_lm_ids"][used]
    texts = []
    for row, swapped in zip(ids, columns["next_sentence_labels"]):
        body = row[1 : row.nonzero()[0][-1]].tolist()
        middle = body.index(3)
        first, second = body[:middle], body[middle + 1 :]
        texts.append(tuple(second + first if swapped else first + second))
    return texts


def test_every_epoch_has_the_same_texts_and_new_masks(stream):
    epochs = [{n: v[i : i + EXAMPLES] for n, v in stream.items()} for i in range(0, 900, EXAMPLES)]
    by_text = [dict(zip(original(e), range(EXAMPLES))) for e in epochs]
    assert len(by_text[0]) == EXAMPLES
    assert by_text[0].keys() == by_text[1].keys() == by_text[2].keys()
    for (one, rows), (other, other_rows) in itertools.combinations(zip(epochs, by_text), 2):
        pairs = np.array([(row, other_rows[text]) for text, row in rows.items()]).T
        positions, labels = (
            [epoch[name][row] for epoch, row in zip((one, other), pairs)]
            for name in ("masked_lm_positions", "next_sentence_labels")
        )
        assert np.mean((positions[0] == positions[1]).all(axis=1)) < 0.15
        assert abs(np.mean(labels[0] == labels[1]) - 0.5) < 0.12


def test_the_seed_decides_the_masks(source, stream):
    same, other = (take(source.reseeded(s).train_input_fn(InputContext(12)), 1) for s in (7, 8))
    np.testing.assert_equal(same, {name: value[:12] for name, value in stream.items()})
    assert (other["masked_lm_positions"] != stream["masked_lm_positions"][:12]).any()


def held_out(source, size, pipelines):
    """Returns the joined evaluation batches, in the order of the records."""
    contexts = [InputContext(size, 0, pipelines, i) for i in range(pipelines)]
    columns = joined([take(source.eval_input_fn(context), -1) for context in contexts])
    real = np.flatnonzero(columns["example_index"] >= 0)
    rows = real[np.argsort(columns["example_index"][real])]
    return {name: value[rows] for name, value in columns.items()}


@pytest.fixture(scope="module")
def held_out_64(source):
    return held_out(source, 64, 1)


@pytest.mark.parametrize("batching", [(7, 1), (10, 2), *slow((64, 1))])
def test_masks_of_evaluation_do_not_depend_on_the_batches(source, held_out_64, batching):
    assert held_out_64["example_index"].tolist() == list(range(EXAMPLES))
    np.testing.assert_equal(held_out(source, *batching), held_out_64)


def test_shapes_are_static_and_the_fingerprint_depends_on_the_options(source, tokenizer):
    for dataset in (source.train_input_fn(InputContext(6)), source.eval_input_fn(InputContext(6))):
        assert all(spec.shape.is_fully_defined() for spec in dataset.element_spec.values())
    other = Masking(source.features, MaskingOptions(4), tokenizer, swap=True)
    changed = RecordSource(source.files, source.features, masking=other)
    assert changed.fingerprint != source.fingerprint
