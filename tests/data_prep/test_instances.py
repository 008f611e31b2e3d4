# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Instances: pairs in order or swapped, single sentences, truncation."""

from collections import Counter, namedtuple

import numpy as np
import pytest

from albert_tf.data_prep.documents import DOCUMENT_END, SENTENCE_END, Bucket
from albert_tf.data_prep.instances import _Cutter, create_instances
from albert_tf.data_prep.pretraining_options import PretrainingOptions

WORD_STARTS = np.ones(1000, bool)


#: The rows of instances.
Instances = namedtuple("Instances", "a_start a_end b_start b_end labels")


def numbers_of(lengths, tokens):
    """Returns the numbers of a document from the lengths of its sentences and its tokens."""
    ends = np.cumsum(lengths)
    return np.append(np.insert(tokens, ends, SENTENCE_END), DOCUMENT_END).astype(np.int32)


def random_bucket(sentence_lengths_of_documents, rng):
    """Returns documents of random tokens with sentences of the given lengths."""
    documents = [
        numbers_of(x, rng.integers(5, 1000, sum(x))) for x in sentence_lengths_of_documents
    ]
    return Bucket.from_numbers(np.concatenate(documents))


def random_documents(rng, n=60, sentences=(2, 40), tokens=(3, 25)):
    return [rng.integers(*tokens, rng.integers(*sentences)).tolist() for _ in range(n)]


def document_of(bucket, token):
    bounds = bucket.sentence_bounds[bucket.document_bounds]
    return np.searchsorted(bounds, token, side="right") - 1


def cut(bucket, passes, rng, options, word_starts=WORD_STARTS):
    """Returns the instances of several passes, and their counts."""
    counts = Counter()
    parts = []
    for _ in range(passes):
        instances, cutting = create_instances(bucket, word_starts, options, rng)
        parts.append(instances)
        counts.update(cutting)
    return Instances(*np.concatenate(parts, axis=1)), counts


def lengths_of(instances):
    return instances.a_end - instances.a_start, instances.b_end - instances.b_start


def test_segments_of_sop_follow_each_other():
    rng = np.random.default_rng(0)
    bucket = random_bucket(random_documents(rng), rng)
    instances, _ = cut(bucket, 100, rng, PretrainingOptions(max_seq_length=64))
    assert len(instances.labels) > 30_000
    assert not instances.labels.any()  # Masking swaps them.
    assert (instances.a_end <= instances.b_start).all()
    np.testing.assert_array_equal(
        document_of(bucket, instances.a_start), document_of(bucket, instances.b_start)
    )
    a, b = lengths_of(instances)
    assert min(a.min(), b.min()) >= 1
    assert (a + b).max() == 61


def test_chunks_equal_those_collected_sentence_by_sentence():
    rng = np.random.default_rng(1)
    documents = random_documents(rng)
    bucket = random_bucket(documents, rng)
    target = 30
    options = PretrainingOptions(
        max_seq_length=target + 2, short_seq_prob=0.0, sentence_objective="none"
    )
    instances, _ = cut(bucket, 1, rng, options)
    expected = []
    position = 0
    for lengths in documents:
        chunk = 0
        for i, length in enumerate(lengths):
            chunk += length
            position += length
            if chunk >= target or i == len(lengths) - 1:
                expected.append((position - chunk, min(chunk, target)))
                chunk = 0
    actual = sorted(zip(instances.a_start.tolist(), lengths_of(instances)[0].tolist()))
    assert [length for _, length in actual] == [length for _, length in expected]
    for (start, length), (chunk_start, _) in zip(actual, expected):
        assert chunk_start <= start < chunk_start + length + 25
    assert not instances.labels.any()
    assert (instances.b_start == instances.b_end).all()


def test_single_sentences_are_merged_or_skipped_and_counted():
    rng = np.random.default_rng(2)
    # Targets are 13: [20 5] is merged with the next; 20 alone at the end takes the one before.
    bucket = random_bucket([[20, 5, 6, 8, 20], [30], [13, 4]], rng)
    instances, counts = cut(
        bucket, 1, rng, PretrainingOptions(max_seq_length=16, short_seq_prob=0.0)
    )
    assert counts["documents_skipped_single_sentence"] == 1
    spans = sorted(
        (min(a, b), max(c, d))
        for a, b, c, d in zip(
            instances.a_start, instances.b_start, instances.a_end, instances.b_end
        )
    )
    # Three chunks of the first document (the middle one [6 8]) and one of the last.
    assert len(spans) == 4
    assert spans[0][0] < 25 and spans[1][0] >= 25 and spans[3][0] >= 89


def whole_chunks(lengths, target, least):
    """[start, end) of the sentences of each chunk, found sentence by sentence."""
    chunks, start, tokens = [], 0, 0
    for i, length in enumerate([*lengths, 10**6]):
        if tokens + length <= target:
            tokens += length
            continue
        chunks.append((start, i))
        start, tokens = i + 1, 0
    return [(a, b) for a, b in chunks if b - a >= least]


@pytest.mark.parametrize(("objective", "least"), [("sop", 2), ("none", 1)])
def test_whole_sentences_are_those_that_fit_without_the_one_that_does_not(objective, least):
    rng = np.random.default_rng(7)
    documents = [*random_documents(rng, tokens=(3, 45)), [20], [90], [10, 90], [90, 10, 10]]
    bucket = random_bucket(documents, rng)
    options = PretrainingOptions(
        43, short_seq_prob=0.0, sentence_objective=objective, whole_sentences=True
    )
    instances, counts = cut(bucket, 1, rng, options)
    expected, kept = [], 0
    bounds = bucket.sentence_bounds
    for first, lengths in zip(bucket.document_bounds, documents):
        for start, end in whole_chunks(lengths, options.max_text_tokens, least):
            expected.append((bounds[first + start], bounds[first + end]))
            kept += end - start
    if objective == "sop":
        starts, ends = instances.a_start, instances.b_end
        assert set(instances.a_start) | set(instances.b_start) <= set(bounds)
        np.testing.assert_array_equal(sum(lengths_of(instances)), ends - starts)
    else:
        starts, ends = instances.a_start, instances.a_end
    assert sorted(zip(starts, ends)) == expected
    assert counts["instances_truncated"] == counts["tokens_truncated"] == 0
    assert counts["sentences_left_out"] == sum(map(len, documents)) - kept


def test_lengths_of_whole_sentences_tell_nothing_of_their_order():
    rng = np.random.default_rng(8)
    bucket = random_bucket(random_documents(rng, 400, (20, 100), (1, 41)), rng)
    shares = {}
    for whole in (True, False):
        options = PretrainingOptions(max_seq_length=64, short_seq_prob=0.0, whole_sentences=whole)
        instances, _ = cut(bucket, 8, rng, options)
        first, second = lengths_of(instances)
        different = first != second
        assert different.sum() > 10_000
        shares[whole] = (second > first)[different].mean()
    # Four standard errors. Where segments are truncated, the lengths do tell it.
    assert shares[True] == pytest.approx(0.5, abs=0.02)
    assert abs(shares[False] - 0.5) > 0.03


@pytest.mark.parametrize("whole", [False, True])
def test_repeated_segments_are_whole_sentences_of_a_share_of_the_documents(whole):
    rng = np.random.default_rng(9)
    documents = random_documents(rng, 400)
    bucket = random_bucket(documents, rng)
    options = PretrainingOptions(
        max_seq_length=64, short_seq_prob=0.0, whole_sentences=whole, repeat_prob=0.3
    )
    instances, counts = cut(bucket, 1, rng, options)
    repeated = instances.a_start == instances.b_start
    assert counts["instances_repeated"] == repeated.sum()
    numbers = document_of(bucket, instances.a_start)
    assert not set(numbers[repeated]) & set(numbers[~repeated])
    # Four standard errors.
    assert len(set(numbers[repeated])) / len(documents) == pytest.approx(0.3, abs=0.1)
    np.testing.assert_array_equal(instances.a_end[repeated], instances.b_end[repeated])
    assert sum(lengths_of(instances)).max() <= options.max_text_tokens
    expected = []
    for document in sorted(set(numbers[repeated])):
        first = bucket.document_bounds[document]
        for start, end in whole_chunks(documents[document], options.max_text_tokens // 2, 1):
            expected.append(tuple(bucket.sentence_bounds[[first + start, first + end]]))
    assert sorted(zip(instances.a_start[repeated], instances.a_end[repeated])) == expected


def test_nsp_takes_half_of_the_second_segments_from_another_document():
    rng = np.random.default_rng(4)
    bucket = random_bucket(random_documents(rng, 100, (6, 40), (2, 8)), rng)
    instances, counts = cut(
        bucket, 60, rng, PretrainingOptions(max_seq_length=64, sentence_objective="nsp")
    )
    foreign = document_of(bucket, instances.a_start) != document_of(bucket, instances.b_start)
    np.testing.assert_array_equal(foreign, instances.labels == 1)
    # Single sentences at the ends of documents always get another document.
    assert 0.5 < instances.labels.mean() < 0.62
    related = ~foreign
    assert (instances.a_end[related] <= instances.b_start[related]).all()
    assert counts["chunks_dropped_no_other_document"] == 0


def test_nsp_drops_chunks_if_there_is_no_other_document():
    rng = np.random.default_rng(5)
    bucket = random_bucket([[5] * 100], rng)
    instances, counts = cut(
        bucket, 5, rng, PretrainingOptions(max_seq_length=32, sentence_objective="nsp")
    )
    assert not instances.labels.any()
    assert counts["chunks_dropped_no_other_document"] > 0


def test_documents_of_other_buckets_are_not_cut():
    rng = np.random.default_rng(6)
    documents = [numbers_of([5] * 10, np.full(50, i + 5)) for i in range(4)]
    bucket = Bucket.from_numbers(documents[0], *documents[1:])
    instances, _ = cut(
        bucket, 50, rng, PretrainingOptions(max_seq_length=32, sentence_objective="nsp")
    )
    assert (instances.a_end <= 50).all()
    assert set(document_of(bucket, instances.b_start).tolist()) == {0, 1, 2, 3}


def official_lengths(a, b, longest):
    while a + b > longest:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def test_truncation_leaves_the_lengths_of_removal_token_by_token():
    rng = np.random.default_rng(7)
    n = 3000
    a, b = rng.integers(1, 60, (2, n)).astype(np.int32)
    longest = 41
    a_start = np.zeros(n, np.int32)
    b_start = np.full(n, 100, np.int32)
    segments = np.stack([a_start, a, b_start, b_start + b])
    options = PretrainingOptions(max_seq_length=longest + 3)
    bucket = Bucket(np.zeros(200, np.int32), np.zeros(1), np.zeros(1), 0)
    cutter = _Cutter(bucket, WORD_STARTS, options, rng)
    short = cutter.shortened(segments)
    short = Instances(*short, labels=None)
    expected = np.array([official_lengths(*pair, longest) for pair in zip(a, b)])
    lengths = np.stack(lengths_of(short), axis=1)
    # Officially B is shortened first; here, either segment may be.
    equal = np.flatnonzero((expected == [21, 20]).all(axis=1) & (b >= 21))
    assert (lengths[equal] == [20, 21]).all(axis=1).mean() == pytest.approx(0.5, abs=0.1)
    expected[equal] = [20, 21]
    lengths[equal] = np.sort(lengths[equal])
    np.testing.assert_array_equal(lengths, expected)
    assert cutter.counts["tokens_truncated"] == (a + b).sum() - expected.sum()
    assert cutter.counts["instances_truncated"] == (a + b > longest).sum()
    removed = a - lengths_of(short)[0]
    front = short.a_start - a_start
    assert (front <= removed).all()
    assert front.sum() / removed.sum() == pytest.approx(0.5, abs=0.02)
    # Token by token each is from the front with probability 1/2: a binomial's spread, not uniform.
    many = removed >= 20
    assert (front[many] / removed[many]).std() < 0.13


def test_segments_are_cut_at_word_edges():
    rng = np.random.default_rng(8)
    # Odd ids continue a word.
    word_starts = np.arange(1000) % 2 == 0
    documents = []
    for _ in range(30):
        lengths = rng.integers(10, 40, 10)
        tokens = rng.integers(5, 1000, lengths.sum())
        tokens[np.concatenate([[0], np.cumsum(lengths)[:-1]])] = 6
        documents.append(numbers_of(lengths, tokens))
    bucket = Bucket.from_numbers(np.concatenate(documents))
    options = PretrainingOptions(max_seq_length=48, sentence_objective="none")
    instances, _ = cut(bucket, 10, rng, options, word_starts)
    assert word_starts[bucket.tokens[instances.a_start]].all()
    assert word_starts[np.append(bucket.tokens, 6)[instances.a_end]].all()


def test_some_documents_are_cut_into_shorter_instances():
    rng = np.random.default_rng(10)
    bucket = random_bucket([[1] * 300 for _ in range(200)], rng)
    full, _ = cut(bucket, 5, rng, PretrainingOptions(max_seq_length=53, short_seq_prob=0.0))
    assert len(full.labels) == 5 * 200 * 6
    mixed, _ = cut(bucket, 50, rng, PretrainingOptions(max_seq_length=53, short_seq_prob=0.1))
    assert len(mixed.labels) > 10 * len(full.labels)
    assert set(sum(lengths_of(mixed)).tolist()) == set(range(2, 51))
