# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The predictions of an evaluation that TensorBoard shows."""

import numpy as np
import pytest

from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import RunConfig
from albert_tf.training.task import rows_to_show
from tests.support.builders import tiny_config
from tests.support.small_tasks import PIECES, open_small_task


def open_task(name, folder):
    return open_small_task(name, tiny_config(len(PIECES)), folder)


def test_examples_are_shown_at_equal_distances():
    assert rows_to_show(0) == []
    assert rows_to_show(3) == [0, 1, 2]
    assert rows_to_show(10) == list(range(10))
    assert rows_to_show(1005) == [0, 100, 201, 301, 402, 502, 603, 703, 804, 904]


def test_texts_have_their_label_and_the_best_prediction(tmp_path):
    task, _, held_out = open_task("classification", tmp_path)
    examples = held_out.examples.examples
    probabilities = np.tile(np.float32([[0.25, 0.75], [0.5, 0.5], [1, 0], [0.1, 0.9]]), [4, 1])
    rows = task.shown_predictions({"probabilities": probabilities}, held_out.examples)
    assert [row["text"] for row in rows] == [examples[i].text for i in rows_to_show(len(examples))]
    assert rows[0] == {
        "text": examples[0].text, "label": "x", "predicted": "y", "probability": 0.75,
    }  # fmt: skip
    best = ["yxxy"[i % 4] for i in rows_to_show(len(examples))]
    assert [row["predicted"] for row in rows] == best


def test_numbers_have_their_label_and_the_predicted_number(tmp_path):
    task, _, held_out = open_task("regression", tmp_path)
    rows = task.shown_predictions({"values": np.float32([1.5, -2.0])}, held_out.examples)
    found = [(row["label"], row["predicted"]) for row in rows]
    assert found == [("0.5", 1.5), ("4.5", -2.0)]


def test_questions_have_their_right_and_their_chosen_option(tmp_path):
    task, _, held_out = open_task("multiple_choice", tmp_path)
    probabilities = np.float32([[0.1, 0.2, 0.7], [0.2, 0.8, 0.0]])
    rows = task.shown_predictions({"probabilities": probabilities}, held_out.examples)
    assert [(row["label"], row["predicted"]) for row in rows] == [("w0", "w2"), ("w1", "w1")]
    assert rows[0]["question"] == held_out.examples.examples[0].question


@pytest.mark.parametrize("version", ["1", "2"])
def test_questions_have_their_first_answer_and_the_best_span(version, tmp_path):
    task, _, held_out = open_task(f"squad_{version}", tmp_path)
    config = RunConfig(output_dir=str(tmp_path / "run"), precision="float32")
    outputs = Estimator(task, config).outputs(held_out)
    rows = task.shown_predictions(outputs, held_out.examples)
    best = held_out.examples.answers(outputs).nbest
    questions = [held_out.examples.examples[i] for i in rows_to_show(16)]
    assert [row["predicted"] for row in rows] == [best[q.id][0]["text"] for q in questions]
    expected = [q.answers[0].text if q.answers else "no answer" for q in questions]
    assert [row["label"] for row in rows] == expected
    assert ("null odds" in rows[0]) == (version == "2") == ("no answer" in expected)
