# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Choosing in Python. tests/test_run_race.py compares it with the script's predictions."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.multiple_choice.chooser import MultipleChoice
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from tests.support.builders import tiny_config, write_tokenizer
from tests.support.small_tasks import WORDS

ROWS = [
    {
        "context": f"{WORDS[i]} {WORDS[i + 1]} {WORDS[i + 2]}",
        "question": "w0 _",
        "options": [WORDS[(i + j) % 30] for j in range(3)],
        "label": i % 3,
    }
    for i in range(8)
]


@pytest.fixture
def tokenizer(tmp_path):
    return write_tokenizer(tmp_path, WORDS)


def test_the_choice_is_that_of_the_records(tokenizer):
    config = tiny_config(tokenizer.vocab_size, initializer_range=0.5)
    task = MultipleChoiceTask(config, tokenizer, MultipleChoiceSpec(16, 6))
    model = task.build_model()
    long = " ".join(WORDS[:20])
    options = ("w1", "w2 w3", "w4 w5 w6 w7 w8 w9 w10")
    example = MultipleChoiceExample("", long, "w9 _", options, None, "", "")
    data = task.encode([example], labelled=False)
    outputs = data.outputs(functools.partial(task.predict, model))
    chosen = MultipleChoice(task, model).choose(options, "w9 _", long)
    np.testing.assert_allclose(chosen.probabilities, outputs["probabilities"][0], atol=1e-5)
    assert chosen.index == np.argmax(chosen.probabilities)
    assert chosen.option == options[chosen.index]
    assert np.ptp(chosen.probabilities) > 1e-3
    chooser = MultipleChoice(task, model)
    assert len(chooser.choose(["w1", "w2"]).probabilities) == 2
    with pytest.warns(UserWarning, match="^Of 2 examples, 4 sequences are cut"):
        assert chooser.choose([options, options], "w9 _", [long, ""])[0].option == chosen.option
    assert chooser.choose([]) == []


def test_the_training_questions_are_no_evaluation(tmp_path):
    path = tmp_path / "copy.jsonl"
    path.write_text("".join(f"{json.dumps({**row, 'id': str(row)})}\n" for row in ROWS[::-1]))
    with pytest.raises(AlbertError, match="The 8 examples to evaluate on are the training ex"):
        rows = [*ROWS, {**ROWS[0], "label": -1}]
        MultipleChoice.train("albert_tiny_books", rows, path, output_dir=tmp_path)


def test_a_missing_answer_is_named(tmp_path):
    rows = [ROWS[0], {**ROWS[1], "label": None}]
    with pytest.raises(AlbertError, match="eval row 1: the answer is missing"):
        MultipleChoice.train("albert_tiny_books", ROWS, rows, output_dir=tmp_path)


def test_wrong_options_are_refused(tokenizer):
    task = MultipleChoiceTask(
        tiny_config(tokenizer.vocab_size), tokenizer, MultipleChoiceSpec(16, 6)
    )
    chooser = MultipleChoice(task, None)
    for arguments, message in (
        ((["a"],), "choose row 0: there must be 2 to 26 options, not 1"),
        (("ab",), "choose row 0: 'options' must be a list"),
        ((["a", "b"], 3), "The question must be a string"),
        ((["a", "b"], "", 3), "The context must be a string"),
        (([["a", "b"]], ["c", "d"]), "There are 2 questions, not 1."),
        (([["a", "b"], ["c"] * 3],), "choose row 1: 3 options, but the first question has 2"),
    ):
        with pytest.raises(AlbertError, match=message):
            chooser.choose(*arguments)
