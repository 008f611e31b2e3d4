# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Which single questions count as answerable. tests/test_run_squad.py answers some.

Training in Python gives the model of run_squad.py.
"""

from __future__ import annotations

import json
import math

import pytest

from albert_tf.errors import AlbertError
from albert_tf.scripts import run_squad
from albert_tf.tasks.squad.answerer import QuestionAnswerer
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from tests.support.builders import write_tokenizer
from tests.support.small_tasks import WORDS, squad_content
from tests.tasks.conftest import trained_both_ways

ROW = {"question": "a b", "context": "c d e", "answers": "d"}


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_a_question_is_answerable_up_to_the_threshold_of_its_null_odds(config, tokenizer, version):
    spec = SquadSpec(version, max_seq_length=32, max_query_length=8)
    task = SquadTask(config, tokenizer, spec, 0.0)
    answerer = QuestionAnswerer(task, task.build_model())
    odds, found = answerer.answer("a b", "c d e f").null_odds, []
    if version == "1.1":
        assert odds is None and answerer.answer("a b", "c d e f").answerable
        return
    for threshold in (math.nextafter(odds, -math.inf), odds, math.nextafter(odds, math.inf)):
        answerer.task.threshold = threshold
        found.append(answerer.answer("a b", "c d e f").answerable)
    assert found == [False, True, True]


@pytest.mark.slow
def test_training_in_python_gives_the_model_of_the_script(tmp_path):
    tokenizer = write_tokenizer(tmp_path, WORDS)
    content, data = squad_content("2.0", 8), tmp_path / "data.json"
    data.write_text(json.dumps(content))
    (paragraph,) = content["data"][0]["paragraphs"]
    rows = [{**qa, "context": paragraph["context"]} for qa in paragraph["qas"]]
    settings = {"version": "2.0", "train_step": 2, "max_seq_length": 32, "max_query_length": 4}
    python, script = trained_both_ways(
        run_squad, QuestionAnswerer, tokenizer, tmp_path, rows, data, **settings
    )
    assert python.threshold == script.threshold
    assert python.answer("w1 w2", "w3 w4 w5") == script.answer("w1 w2", "w3 w4 w5")


@pytest.mark.parametrize(
    ("data", "version", "message"),
    [
        ([{"question": "a"}], None, r"train row 0 \(question 0\) has no text 'context'; it has"),
        ([], None, "The train data holds no examples"),
        ([ROW, {**ROW, "id": "0"}], None, r"question 0\): the id occurs twice"),
        ([{**ROW, "answers": []}], "1.1", "unanswerable .* use `version`=2.0"),
        ([ROW], "3", "`version`='3' is unknown; use one of 1.1, 2.0"),
        (3, None, "The train data must be a path"),
    ],
)
def test_wrong_questions_are_named(data, version, message, tmp_path):
    with pytest.raises(AlbertError, match=message):
        QuestionAnswerer.train("albert_tiny_books", data, version=version, output_dir=tmp_path)
