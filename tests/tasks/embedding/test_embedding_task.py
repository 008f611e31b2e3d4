# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses and metrics of sentence vectors."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from albert_tf import Estimator, RunConfig
from albert_tf.errors import AlbertError
from albert_tf.modeling.kernels.graph_mode import TrainingStep, training_step
from albert_tf.tasks.embedding.data import EmbeddingExample, EmbeddingSpec
from albert_tf.tasks.embedding.task import EmbeddingTask
from albert_tf.training.loop import distribute
from tests.tasks.conftest import CONFIG
from tests.training.runs import train_loop

DROPOUT = dataclasses.replace(CONFIG, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)


@pytest.fixture
def task(tokenizer):
    return EmbeddingTask(CONFIG, tokenizer, EmbeddingSpec(16, temperature=0.1))


def examples(*rows, score=None):
    return [EmbeddingExample(texts, score, f"row {i}") for i, texts in enumerate(rows)]


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_each_text_finds_its_partner_among_partners_and_negatives(task):
    vectors = np.random.default_rng(0).normal(size=[4, 3, 8]).astype(np.float32)
    found = task.joint_values(tf.constant(vectors), tf.zeros([4, 0]))
    first, second, third = np.moveaxis(unit(vectors), 1, 0)
    forth = first @ np.concatenate([second, third]).T / 0.1
    back = second @ first.T / 0.1
    losses = [
        -np.log(np.exp(logits[i, i]) / np.exp(logits[i]).sum())
        for logits in (forth, back)
        for i in range(4)
    ]
    np.testing.assert_allclose(found["loss"], np.reshape(losses, [2, 4]).mean(0), rtol=1e-5)
    np.testing.assert_array_equal(found["accuracy"], forth.argmax(1) == np.arange(4))


class Recomputed(EmbeddingTask):
    """Its loss is how far the vectors are from those that were shared before."""

    def share(self, vectors, targets):
        return {"shared": vectors, **super().share(vectors, targets)}

    def sums(self, model, batch, training):
        distances = tf.abs(self.vectors(model, batch, training) - batch["shared"])
        return {"loss": tf.reduce_sum(distances), "accuracy": tf.constant(0.0)}


@pytest.fixture
def losses(task, tmp_path):
    """Trains for two steps of eight texts; returns their losses."""

    def losses(kind, config, strategy, parts):
        own = kind(config, task.tokenizer, task.spec)
        source = own.encode(
            examples(*zip(["a", "b", "c", "d", "a b", "c d", "d a b", "e"])), training=True
        ).source
        run = {"strategy": strategy, "gradient_accumulation_steps": parts}
        estimator = Estimator(own, RunConfig(str(tmp_path), train_batch_size=8, **run))
        batches = distribute(estimator.strategy, source.train_input_fn, 8)
        return train_loop(estimator).run(iter(batches), 2)["loss"]

    return losses


@pytest.mark.parametrize("split", [("default", 2), ("mirrored", 1), ("mirrored", 2)])
def test_parts_of_a_batch_share_all_its_vectors_with_the_dropout_masks_of_the_gradient(
    split, losses
):
    np.testing.assert_allclose(losses(Recomputed, DROPOUT, *split), [0, 0], atol=1e-5)
    config = dataclasses.replace(CONFIG, initializer_range=0.5)  # For different vectors.
    whole = losses(EmbeddingTask, config, "default", 1)
    np.testing.assert_allclose(losses(EmbeddingTask, config, *split), whole, rtol=1e-5)


def test_single_texts_are_embedded_twice_with_other_dropout_masks(task):
    task = EmbeddingTask(DROPOUT, task.tokenizer, task.spec)
    data = task.encode(examples(("a b",), ("c d e",)), training=True)
    model, batch = task.build_model(), data.source.batch([0, 1], 8)
    with training_step(TrainingStep(tf.constant([1, 2]))):
        vectors = task.vectors(model, batch, training=True).numpy()
    assert vectors.shape == (2, 2, CONFIG.hidden_size)
    assert np.abs(vectors[:, 0] - vectors[:, 1]).max(axis=1).min() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-5)
    assert task.vectors(model, batch).shape == (2, CONFIG.hidden_size)


def test_cosines_of_scored_pairs_are_compared_with_scores_from_0_to_1(task):
    rows = examples(("a b", "a c"), ("d", "e f"), ("a", "b"))
    rows = [dataclasses.replace(x, score=score) for x, score in zip(rows, (2.0, 1.0, 5.0))]
    data = task.encode(rows, training=True)
    model, batch = task.build_model(), data.source.batch([0, 1, 2], 8)
    np.testing.assert_allclose(batch["targets"][:, 0], [0.25, 0, 1])
    first, second = np.moveaxis(unit(task.vectors(model, batch).numpy()), 1, 0)
    expected = ((first * second).sum(-1) - batch["targets"][:, 0]) ** 2
    found = task.sums(model, batch, False)["loss"]
    np.testing.assert_allclose(found, np.sum(expected), rtol=1e-4)
    with pytest.raises(AlbertError, match="all 2"):
        task.encode(rows[:1], training=True)


def test_scored_pairs_have_correlations(task):
    scores = [0.0, 3.0, 1.0, 5.0]
    rows = [dataclasses.replace(x, score=s) for x, s in zip(examples(*[("a", "b")] * 4), scores)]
    vectors = np.random.default_rng(1).normal(size=[4, 2, 8])
    data = task.encode(rows)
    assert task.best_metric == "spearman"
    found = task.metrics({"embedding": vectors}, data)
    cosines = (unit(vectors)[:, 0] * unit(vectors)[:, 1]).sum(-1)
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(cosines, scores)[0])
    assert found["pearson"] == pytest.approx(np.corrcoef(cosines, scores)[0, 1])


def test_pairs_have_the_ranks_of_their_partners_among_distinct_texts(task):
    vectors = np.zeros([4, 2, 3])
    vectors[:, 1] = np.eye(3)[[0, 0, 1, 2]]
    # The partner is the first; the first, with an equal one; the second; and the third.
    vectors[:, 0] = [[3, 2, 1], [3, 2, 1], [3, 2, 1], [3, 2, 1]]
    data = task.encode(examples(("a", "x"), ("b", "x"), ("c", "y"), ("d", "z")))
    assert task.best_metric == "mrr"
    found = task.metrics({"embedding": vectors}, data)
    assert (found["recall_at_1"], found["recall_at_10"]) == (0.5, 1.0)
    assert found["mrr"] == pytest.approx((1 + 1 + 1 / 2 + 1 / 3) / 4)


def test_collapsed_vectors_are_noticed(task):
    data = task.encode(examples(("a", "b"), ("b", "c"), ("c", "d")))
    other = np.random.default_rng(0).normal(size=[3, 2, 8])
    note = task.constant_answer_note(task.metrics({"embedding": 1 + 0.01 * other}, data))
    assert "collapsed" in note and "1.00" in note
    assert task.constant_answer_note(task.metrics({"embedding": other}, data)) is None
    assert task.metrics({"embedding": np.ones([3, 2, 8])}, data)["recall_at_1"] == 0


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (examples(("a",), ("b",)), "row 0: evaluation needs pairs"),
        (examples(("a", "b"), ("a", "c"), score=2.0), "of the 2 pairs are all 2"),
    ],
)
def test_what_says_nothing_cannot_be_evaluated_on(rows, fault, task):
    with pytest.raises(AlbertError, match=fault):
        task.encode(rows)
