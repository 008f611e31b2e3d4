# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SquadTask: its losses against NumPy, its outputs, its records and its files."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.keras2 import keras
from albert_tf.tasks.squad.task import SquadSpec, SquadTask

#: [CLS] question [SEP] context [SEP], and the same with a shorter question and context.
ALLOWED = np.zeros([2, 12], bool)
ALLOWED[0, [0, 4, 5, 6, 7, 8, 9, 10]] = True
ALLOWED[1, [0, 3, 4]] = True


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(3)


@pytest.fixture
def batch():
    position = np.arange(12)
    lengths, first = np.array([[12], [6]]), np.array([[4], [3]])
    mask = position < lengths
    ids = np.random.default_rng(0).integers(5, 31, [2, 12]) * mask
    return {
        "input_word_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.constant(mask, tf.int32),
        "input_type_ids": tf.constant(mask & (position >= first), tf.int32),
        "start_positions": tf.constant([6, 0]),
        "end_positions": tf.constant([8, 0]),
    }


@pytest.fixture
def make_task(config, tokenizer):
    def make(version="1.1", **settings):
        lengths = {"max_seq_length": 32, "max_query_length": 8}
        return SquadTask(config, tokenizer, SquadSpec(version, **{**lengths, **settings}), 0.0)

    return make


def make_model(task):
    """The task's model with weights so large that its answers differ."""
    model = task.build_model()
    for i, variable in enumerate(model.head.weights):
        variable.assign(tf.random.stateless_normal(variable.shape, [1, i]))
    return model


def log_softmax(scores, allowed):
    weights = np.where(allowed, np.exp(scores), 0)
    return np.log(np.where(allowed, weights / weights.sum(-1, keepdims=True), 1e-30))


def padded(batch, length):
    return {
        k: tf.pad(v, [[0, 0], [0, length - 12]]) if k.startswith("input") else v
        for k, v in batch.items()
    }


def loss_of(task, model, *batches):
    """The loss over a batch that comes in parts."""
    sums = [task.sums(model, part, training=False) for part in batches]
    weights = [task.weights(part) for part in batches]

    def total(parts):
        return {name: sum(float(part[name]) for part in parts) for name in parts[0]}

    return task.means(total(sums), total(weights))


def test_span_loss_is_a_softmax_over_context_and_cls(make_task, batch):
    task = make_task()
    model = make_model(task)
    outputs = model({k: v for k, v in batch.items() if k.startswith("input")})
    expected = 0.0
    for side in ("start", "end"):
        log_probs = log_softmax(outputs[f"{side}_logits"].numpy(), ALLOWED)
        gold = batch[f"{side}_positions"].numpy()
        expected -= 0.5 * log_probs[[0, 1], gold].mean()
    assert loss_of(task, model, batch)["loss"] == pytest.approx(expected, abs=1e-5)


def test_beam_loss_adds_half_of_the_answerability_loss(make_task, batch):
    task = make_task("2.0")
    model = make_model(task)
    inputs = {k: v for k, v in batch.items() if k.startswith(("input", "start"))}
    outputs = {k: v.numpy().astype(float) for k, v in model(inputs).items()}
    rows = [0, 1]
    span = -0.5 * (
        outputs["start_log_probs"][rows, [6, 0]] + outputs["end_log_probs"][rows, [8, 0]]
    )
    impossible = 1 / (1 + np.exp(-outputs["cls_logits"]))
    expected = span.mean() - 0.5 * np.mean([np.log(1 - impossible[0]), np.log(impossible[1])])
    assert loss_of(task, model, batch)["loss"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_loss_does_not_depend_on_padding_or_on_how_a_batch_is_cut(make_task, batch, version):
    task = make_task(version)
    model = make_model(task)
    whole = loss_of(task, model, batch)
    parts = [{k: v[i : i + 1] for k, v in batch.items()} for i in range(2)]
    for others in (loss_of(task, model, *parts), loss_of(task, model, padded(batch, 32))):
        for name, value in whole.items():
            assert float(others[name]) == pytest.approx(float(value), abs=1e-5), name


def test_accuracies_count_what_is_right(make_task, batch):
    task = make_task()
    model = task.build_model()
    # Without a word the head prefers no position; the first of equals is [CLS].
    for variable in model.head.weights:
        variable.assign(tf.zeros_like(variable))
    assert loss_of(task, model, batch)["span_accuracy"] == 0.5
    beam = make_task("2.0")
    model = make_model(beam)
    signs = np.sign(model(batch)["cls_logits"])
    right = np.mean(signs == [-1, 1])
    assert loss_of(beam, model, batch)["answerability_accuracy"] == right


def test_span_search_gets_the_best_positions_of_the_context(make_task, batch):
    task = make_task(n_best_size=5)
    model = make_model(task)
    logits = model(batch)
    found = {
        k: np.squeeze(v, 1) if k.startswith("end") else v.numpy()
        for k, v in task.predict(model, batch).items()
    }
    for side in ("start", "end"):
        scores = logits[f"{side}_logits"].numpy()
        for row, count in ((0, 5), (1, 2)):
            context = np.flatnonzero(ALLOWED[row])[1:]
            best = context[np.argsort(-scores[row, context])][:count]
            np.testing.assert_array_equal(found[f"{side}s"][row, :count], best)
            top = found[f"{side}_scores"][row, :count]
            np.testing.assert_allclose(top, scores[row, best], atol=1e-6)
        assert found[f"{side}_scores"][1, 2:].max() < -1e29


def test_the_null_odds_of_the_plain_head_compare_cls_with_the_best_span(make_task, batch):
    task = make_task("2.0", plain_head=True)
    model = make_model(task)
    logits = {name: value.numpy() for name, value in model(batch).items()}
    best = [max(x[0][ALLOWED[0]][1:]) for x in logits.values()]
    odds = float(task.predict(model, batch)["null_odds"][0])
    assert odds == pytest.approx(sum(x[0, 0] for x in logits.values()) - sum(best), abs=1e-5)
    # Its loss, of windows without an answer too, is that of 1.1.
    loss = loss_of(make_task(), model, batch)["loss"]
    assert loss_of(task, model, batch)["loss"] == loss


@pytest.mark.parametrize("settings", [{"version": "1.1"}, {"version": "2.0"}])
def test_outputs_have_one_shape_for_all_lengths(make_task, batch, settings):
    task = make_task(n_best_size=20, start_n_top=3, end_n_top=13, **settings)
    model = make_model(task)
    batch = {name: value for name, value in batch.items() if name.startswith("input")}
    short, long = (task.predict(model, b) for b in (batch, padded(batch, 32)))
    for name, value in short.items():
        assert value.shape == long[name].shape and value.shape[0] == 2
        if value.dtype == tf.float32:
            real = value.numpy() > -1e29
            np.testing.assert_allclose(long[name].numpy()[real], value.numpy()[real], atol=1e-4)


CONTEXT = "the river , the cafe , a fine river"


def test_windows_are_evaluated_in_the_order_of_the_questions(make_task, ask):
    task = make_task("2.0", max_seq_length=12, doc_stride=3, max_query_length=4)

    def open_questions(last):
        golds = ["cafe"], [], [last]
        asked = [ask(CONTEXT, *gold, is_impossible=not gold) for gold in golds]
        return task.open_examples(asked, "eval")

    new, other = open_questions("river"), open_questions("fine")
    assert new.source.num_examples == len(new.asked.windows.first) > 3
    assert new.eval_spec(2).max_steps == new.source.num_batches(2)
    assert new.source.fingerprint == other.source.fingerprint
    assert new.fingerprint != other.fingerprint
