# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Masking: the official builder's distribution, as a function of seed and position.

The masks of a stream are new in each epoch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import masking, records
from albert_tf.data.context import InputContext
from albert_tf.data.masking import MASK_SHARE, Masking, RowNumbers, budgets, span_thresholds
from albert_tf.data.masking_options import MaskingOptions
from albert_tf.data.pipeline import RecordSource
from tests.support.builders import write_tokenizer
from tests.support.cases import slow

CLS, SEP, MASK = 2, 3, 4
FIRST_TEXT_ID, VOCAB = 5, 65


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer of words that are numbers."""
    words = [f"w{i}" for i in range(VOCAB - FIRST_TEXT_ID)]
    return write_tokenizer(tmp_path_factory.mktemp("vocabulary"), words)


@dataclasses.dataclass
class Text:
    """Random texts of two segments, as compact records store them.

    Word starts do not depend on the ids. The list of texts is repeated `times` times.
    """

    ids: list[np.ndarray]
    starts: list[np.ndarray]
    lengths: np.ndarray
    times: int = 1

    @classmethod
    def random(cls, n, rng, longest, shortest=4, times=1):
        sizes = rng.integers(shortest, longest + 1, n)
        first = 1 + rng.integers(0, sizes - 1)
        return cls(
            [rng.integers(FIRST_TEXT_ID, VOCAB, size) for size in sizes],
            [rng.random(size) < 0.8 for size in sizes],
            np.stack([first, sizes - first], 1),
            times,
        )

    def columns(self, length: int) -> dict[str, np.ndarray]:
        """Returns the features of all records, [records, *shape], padded with 0."""
        ids, starts = np.zeros((2, len(self.ids), length), np.int32)
        for row, (text, begins) in enumerate(zip(self.ids, self.starts)):
            ids[row, : len(text)], starts[row, : len(text)] = text, begins
        columns = ids.astype(np.uint16), np.packbits(starts, axis=1), self.lengths
        names = "text_ids", "word_starts", "segment_lengths"
        return {n: np.concatenate([column] * self.times) for n, column in zip(names, columns)}

    def serialized(self, length: int) -> list[bytes]:
        """Returns the records."""
        features = records.compact_features(length, VOCAB)
        sizes = np.tile([len(ids) for ids in self.ids], self.times).tolist()
        columns = self.columns(length)
        columns["text_ids"] = [ids[:n] for ids, n in zip(columns["text_ids"], sizes)]
        columns["word_starts"] = [b[: -(-n // 8)] for b, n in zip(columns["word_starts"], sizes)]
        return records.encode_examples(columns, features)


@pytest.fixture
def draw(tokenizer):
    """Masks a text; by default in the order of the text."""

    def draw(text, stored, options, swap=False, length=None):
        features = records.compact_features(stored, VOCAB)
        masking = Masking(features, options, tokenizer, swap, length)
        return masking.mask(text.columns(stored), 1, 0)

    return draw


def words_of_one_piece(n, lengths):
    """Returns n texts whose segments have these numbers of words."""
    size = sum(lengths)
    ids = np.random.default_rng(0).integers(FIRST_TEXT_ID, VOCAB, (n, size))
    return Text(list(ids), [np.ones(size, int)] * n, np.tile(lengths, (n, 1)))


def predicted(masked):
    """Returns which tokens are predicted, bool [n, length]."""
    used = masked["masked_lm_weights"] > 0
    result = np.zeros(masked["input_word_ids"].shape, bool)
    result[np.nonzero(used)[0], masked["masked_lm_positions"][used]] = True
    return result


def unmasked(masked):
    """Returns the ids with the original tokens in the places of the masks."""
    ids, used = masked["input_word_ids"].copy(), masked["masked_lm_weights"] > 0
    ids[np.nonzero(used)[0], masked["masked_lm_positions"][used]] = masked["masked_lm_ids"][used]
    return ids


def assert_uniform(values, cells):
    counts = np.bincount(values, minlength=cells)
    expected = len(values) / cells
    assert len(counts) == cells and expected > 20
    assert ((counts - expected) ** 2 / expected).sum() < cells + 5 * np.sqrt(2 * cells)


def exact_probabilities(sizes, first_of_b, budget, probabilities):
    """Returns the probability of each set of masked words, by following every random choice.

    Args:
      sizes: pieces of each word.
      first_of_b: the first word of the second segment.
      budget: number of pieces to mask.
      probabilities: of spans of 1, 2, … words.
    """

    @functools.cache
    def follow(left, chosen, room):
        if room == 0 or not left:
            return {chosen: 1.0}
        result = {}
        for word in left:
            end_of_segment = first_of_b if word < first_of_b else len(sizes)
            for length, share in enumerate(probabilities, 1):
                span = list(range(word, min(word + length, end_of_segment)))
                while len(span) > 1 and sum(sizes[w] for w in span) > room:
                    span.pop()
                size = sum(sizes[w] for w in span)
                accepted = size <= room and not chosen & set(span)
                after = (chosen | set(span), room - size) if accepted else (chosen, room)
                for words, p in follow(left - {word}, *after).items():
                    result[words] = result.get(words, 0.0) + p * share / len(left)
        return result

    return follow(frozenset(range(len(sizes))), frozenset(), budget)


@pytest.mark.parametrize(
    ("favor_shorter", "whole_words"), [(True, True), (False, False), (True, False), (False, True)]
)
def test_each_set_of_masked_words_has_its_exact_probability(draw, favor_shorter, whole_words):
    # Words of 1, 2, 1 | 3, 1, 1 pieces; the second one ends the first segment.
    starts = [1, 1, 0, 1, 1, 0, 0, 1, 1]
    n = 100_000
    ids = np.arange(FIRST_TEXT_ID, FIRST_TEXT_ID + 9)
    text = Text([ids], [np.array(starts)], np.array([[4, 5]]), times=n)
    options = MaskingOptions(4, 0.35, 3, favor_shorter, whole_words)
    masked = draw(text, 12, options)
    sizes, first_of_b = ((1, 2, 1, 3, 1, 1), 3) if whole_words else ((1,) * 9, 4)
    shares = np.diff(span_thresholds(options), prepend=0).tolist()
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11][:: 1 if favor_shorter else -1])
    expected = exact_probabilities(sizes, first_of_b, 4, shares)
    begins = np.cumsum((1, *sizes)) + (np.arange(len(sizes) + 1) >= first_of_b)
    found = predicted(masked)[:, begins[:-1]] @ (1 << np.arange(len(sizes)))
    counts = np.bincount(found, minlength=1 << len(sizes))
    probabilities = np.zeros(1 << len(sizes))
    for words, p in expected.items():
        probabilities[sum(1 << w for w in words)] = p
    assert probabilities.sum() == pytest.approx(1)
    assert not counts[probabilities == 0].any()
    cells = probabilities > 20 / n
    chi_square = ((counts - n * probabilities)[cells] ** 2 / (n * probabilities[cells])).sum()
    assert cells.sum() > 10
    assert chi_square < cells.sum() + 5 * np.sqrt(2 * cells.sum())


# Measured on the official builder with words of one piece; the last number is the budget. There,
# spans cross [SEP], so these are texts of one segment.
@pytest.mark.parametrize(
    ("length", "predictions", "favor_shorter", "ngram", "shares", "per_instance", "masked"),
    [
        (512, 77, True, 3, (0.566, 0.268, 0.166), 48.14, 77),
        (512, 20, True, 3, (0.570, 0.272, 0.158), 12.59, 20),
        (128, 20, True, 3, (0.585, 0.265, 0.150), 12.14, 19),
        (128, 20, False, 3, (0.237, 0.290, 0.472), 8.50, 19),
        (128, 20, True, 2, (0.697, 0.303), 14.58, 19),
    ],
)
def test_span_lengths_are_distributed_as_by_the_official_builder(
    draw, monkeypatch, length, predictions, favor_shorter, ngram, shares, per_instance, masked
):
    sizes = []

    class Budgets(np.ndarray):
        """Keeps the sizes of the spans that are taken off: 0 for a span that is skipped."""

        def __sub__(self, taken):
            sizes.append(np.asarray(taken))
            return super().__sub__(taken)

    monkeypatch.setattr(masking, "budgets", lambda *args: budgets(*args).view(Budgets))
    options = MaskingOptions(predictions, 0.15, ngram, favor_shorter)
    drawn = draw(words_of_one_piece(6000, (length - 2, 0)), length, options)
    spans = np.bincount(np.concatenate(sizes))[1:]
    np.testing.assert_allclose(spans / spans.sum(), shares, atol=0.01)
    assert spans.sum() / 6000 == pytest.approx(per_instance, abs=0.15)
    assert (drawn["masked_lm_weights"].sum(axis=1) == masked).mean() >= 0.999


def test_budgets_round_half_to_even_and_are_capped():
    options = MaskingOptions(77)
    lengths = np.array([1, 3, 10, 30, 50, 512, 600])
    expected = [min(77, max(1, round(n * 0.15))) for n in lengths.tolist()]
    assert budgets(options, lengths).tolist() == expected


def test_replacements_are_eighty_ten_ten_and_random_ones_uniform(draw):
    text = Text.random(1000, np.random.default_rng(1), 125, times=20)
    masked = draw(text, 128, MaskingOptions(20))
    used = masked["masked_lm_weights"] > 0
    rows, positions = np.nonzero(used)[0], masked["masked_lm_positions"][used]
    labels = masked["masked_lm_ids"][used]
    put = masked["input_word_ids"][rows, positions]
    error = 4 / np.sqrt(len(put))
    words = VOCAB - FIRST_TEXT_ID
    by_chance = 0.1 / words  # A random piece may equal the original.
    assert (put == MASK).mean() == pytest.approx(0.8, abs=0.4 * error)
    assert (put == labels).mean() == pytest.approx(0.1 + by_chance, abs=0.3 * error)
    random = put[(put != MASK) & (put != labels)]
    assert random.min() >= FIRST_TEXT_ID
    assert_uniform(random - FIRST_TEXT_ID, words)


def test_without_a_share_for_random_pieces_the_rest_is_kept(draw, monkeypatch):
    """By default both shares are 0.1, so no statistics tell them apart."""
    monkeypatch.setattr("albert_tf.data.masking.KEEP_SHARE", 1 - MASK_SHARE)
    masked = draw(Text.random(200, np.random.default_rng(1), 60), 63, MaskingOptions(9))
    ids, original = masked["input_word_ids"], unmasked(masked)
    assert (ids == original)[predicted(masked)].sum() > 100
    assert ((ids == original) | (ids == MASK)).all()


def segments_of(row):
    """Returns the segments of an unmasked sequence."""
    used = row[1 : np.flatnonzero(row)[-1]].tolist()
    middle = used.index(SEP) if SEP in used else len(used)
    return used[:middle], used[middle + 1 :]


def test_batches_have_the_form_of_masked_records(draw, tokenizer):
    text = Text.random(500, np.random.default_rng(2), 60)
    text.lengths[:50] = np.stack([text.lengths[:50].sum(1), np.zeros(50, int)], 1)
    masked = draw(text, 64, MaskingOptions(9), swap=True)
    used, positions = masked["masked_lm_weights"] > 0, masked["masked_lm_positions"]
    assert used.sum(1).max() == 9 and (np.diff(used.astype(int)) <= 0).all()
    assert ((np.diff(positions) > 0) | ~used[:, 1:]).all() and not positions[~used].any()
    swapped = masked["next_sentence_labels"] == 1
    assert not swapped[:50].any() and 0.4 < swapped[50:].mean() < 0.6
    chosen = predicted(masked)
    for row, original in enumerate(unmasked(masked)):
        a, b = text.lengths[row]
        parts = np.split(text.ids[row], [a])
        starts = np.split(np.array(text.starts[row]), [a])
        order = (1, 0) if swapped[row] else (0, 1)
        assert segments_of(original) == tuple(parts[i].tolist() for i in order)
        assert original[0] == CLS and masked["input_mask"][row].sum() == a + b + 2 + (b > 0)
        assert masked["input_type_ids"][row].sum() == (len(parts[order[1]]) + 1 if b else 0)
        # Words are masked whole; a segment may begin inside a word.
        begin = 1
        for i in order:
            for word in np.split(np.arange(len(parts[i])), np.flatnonzero(starts[i][1:]) + 1):
                assert len(set(chosen[row, begin + word].tolist())) <= 1
            begin += len(parts[i]) + 1
    for name, value in masked.items():
        assert value.dtype == (np.float32 if name == "masked_lm_weights" else np.int32)


@pytest.mark.parametrize("segments", [1, 2])
def test_a_shorter_sequence_is_a_random_part_of_the_text(draw, segments):
    text = Text.random(40, np.random.default_rng(6), 61, times=50)
    if segments == 1:
        text.lengths = np.stack([text.lengths.sum(1), np.zeros(40, int)], 1)
    text.ids = [FIRST_TEXT_ID + np.arange(len(ids)) % 60 for ids in text.ids]
    short = 24
    # Every token is predicted, so that the labels are the text.
    drawn = draw(text, 64, MaskingOptions(64, 1.0, ngram=1), swap=True, length=short)
    assert drawn["masked_lm_ids"].shape[1] == 24
    sizes = np.tile([len(ids) for ids in text.ids], 50)
    kept = np.minimum(sizes, short - 1 - segments)
    np.testing.assert_array_equal(drawn["input_mask"].sum(1), kept + 1 + segments)
    np.testing.assert_array_equal(drawn["masked_lm_weights"].sum(1), kept)
    assert not drawn["next_sentence_labels"].any()
    second = kept // 2 + 1 if segments == 2 else np.zeros_like(kept)  # With its [SEP].
    np.testing.assert_array_equal(drawn["input_type_ids"].sum(1), second)
    labels = drawn["masked_lm_ids"] - FIRST_TEXT_ID
    in_use = drawn["masked_lm_weights"] > 0
    steps = np.diff(labels, axis=1)[in_use[:, 1:]]
    assert np.isin(steps, [1, -59]).all()  # Consecutive tokens.
    longest = int(np.argmax(sizes[:40]))
    begins = labels[longest::40, 0]
    assert begins.min() >= 0 and begins.max() <= sizes[longest] - kept[longest]
    assert len(np.unique(begins)) > 15


def test_a_shorter_sequence_is_masked_like_a_record_of_that_length(draw):
    text = Text.random(300, np.random.default_rng(7), 22)
    text.lengths = np.stack([text.lengths.sum(1), np.zeros(300, int)], 1)
    one, other = (
        draw(text, stored, MaskingOptions(predictions), length=24)
        for stored, predictions in ((24, 4), (64, 10))
    )
    np.testing.assert_equal(other, one)


def test_half_of_the_segments_are_swapped_each_time_at_random(draw):
    text = Text.random(200, np.random.default_rng(3), 20, times=20)
    labels = draw(text, 23, MaskingOptions(3), swap=True)["next_sentence_labels"]
    assert labels.mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(4000))
    # The spread of a binomial distribution, not once per record.
    assert labels.reshape(20, 200).sum(0).var() == pytest.approx(20 / 4, rel=0.5)


@pytest.mark.parametrize("first", [0, *slow(1 << 40)])
def test_a_part_of_a_stream_is_masked_like_the_whole_also_in_a_pipeline(tokenizer, first):
    text = Text.random(60, np.random.default_rng(4), 40)
    features = records.compact_features(43, VOCAB)
    masking = Masking(features, MaskingOptions(7), tokenizer, swap=True)
    whole = masking.mask(text.columns(43), 5, first)
    part = masking.draw(tf.constant(text.serialized(43)[20:33]), 5, first + 20)
    assert part.keys() == whole.keys() - {"token_boundary"}
    for name, value in part.items():
        np.testing.assert_array_equal(value, whole[name][20:33], err_msg=name)


def test_a_row_of_random_numbers_depends_on_seed_stream_and_row_alone():
    def rows(first, count, seed=1, stream=2):
        return RowNumbers(seed, first, count).uniform(stream, 6)

    np.testing.assert_array_equal(rows(137, 50), rows(0, 1000)[137:187])
    uniform = rows(1 << 40, 20_000)
    assert_uniform((uniform * 50).astype(int).ravel(), 50)
    assert np.abs(np.corrcoef(uniform.T) - np.eye(6)).max() < 0.04
    assert np.abs(np.corrcoef(uniform[1:, 0], uniform[:-1, 0])[0, 1]) < 0.04
    for other in ({"seed": 2}, {"seed": -1}, {"stream": 3}):
        assert (rows(0, 100, **other) != rows(0, 100)).all()


#: Of the stream that is masked below.
LENGTH, EXAMPLES = 32, 300


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


def original(masked):
    """Returns the unmasked segments of each row in the order of the text, as a tuple of ids."""
    texts = []
    for row, swapped in zip(unmasked(masked), masked["next_sentence_labels"]):
        first, second = segments_of(row)
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
