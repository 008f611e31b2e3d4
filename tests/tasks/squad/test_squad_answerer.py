# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Which single questions count as answerable. tests/test_run_squad.py answers some."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.answerer import QuestionAnswerer
from albert_tf.tasks.squad.task import SquadSpec, SquadTask

ROW = {"question": "a b", "context": "c d e", "answers": "d"}


@pytest.mark.parametrize(("version", "plain"), [("1.1", False), ("2.0", False), ("2.0", True)])
def test_a_question_is_answerable_up_to_the_threshold_of_its_null_odds(
    config, tokenizer, version, plain
):
    spec = SquadSpec(version, plain_head=plain, max_seq_length=32, max_query_length=8)
    task = SquadTask(config, tokenizer, spec, 0.0)
    answerer = QuestionAnswerer(task, task.build_model())
    odds, found = answerer.answer("a b", "c d e f").null_odds, []
    if version == "1.1":
        assert odds is None and answerer.answer("a b", "c d e f").answerable
        return
    for threshold in (math.nextafter(odds, -math.inf), odds, math.nextafter(odds, math.inf)):
        answerer.threshold = threshold
        found.append(answerer.answer("a b", "c d e f").answerable)
    assert found == [False, True, True]


def test_lists_are_answered_each_or_one_text_for_all(config, tokenizer):
    spec = SquadSpec("2.0", max_seq_length=32, max_query_length=2)
    task = SquadTask(config, tokenizer, spec, 0.0)
    answerer = QuestionAnswerer(task, task.build_model())
    single = answerer.answer("a b", "c d e f")
    assert answerer.answer([]) == answerer.answer([], []) == []
    assert [x.text for x in answerer.answer(["a b"] * 2, "c d e f")] == [single.text] * 2
    # An empty context, and in a few of many also none, has the answer "".
    contexts = ["c d e f", "", "\u200b", *["c d e f"] * 30, float("nan")]
    with pytest.warns(UserWarning, match="^Of 34 examples, 1 lack a text .*\n  answer row 33"):
        found = answerer.answer("a b", contexts)
    assert [answer.text for answer in found] == [single.text, "", "", *[single.text] * 30, ""]
    with pytest.warns(UserWarning, match="^Of 1 examples, 1 questions are longer than 2"):
        answerer.answer("a b c", "c d e f")
    for given, message in (
        ((["a"], ["b", "c"]), "There are 2 contexts, not 1."),
        ((["a"],), "The context must be a string, not None"),
        (("a", ["b", None]), "1 of 2 questions cannot be used.* answer row 1"),
    ):
        with pytest.raises(AlbertError, match=message):
            answerer.answer(*given)


@pytest.mark.slow
def test_a_script_without_a_main_guard_trains_on_many_contexts(tmp_path):
    (tmp_path / "script.py").write_text(
        "from albert_tf import QuestionAnswerer\n"
        "rows = [dict(question='a', context=f'b {i}', answers=f'{i}') for i in range(8300)]\n"
        "settings = dict(output_dir='run', train_step=1, max_seq_length=16, max_query_length=4)\n"
        "QuestionAnswerer.train('albert_tiny_books', rows, **settings)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    script = [sys.executable, "script.py"]
    subprocess.run(script, cwd=tmp_path, env=environment, check=True, timeout=240)
    assert (tmp_path / "run/task.json").exists()


@pytest.mark.parametrize(
    ("data", "version", "message"),
    [
        ([{"question": "a"}], None, r"train row 0 \(question 0\) has no text 'context'; it has"),
        ([{**ROW, "answers": "c d e f"}], None, "answer 'c d e f', which is not in the context"),
        ([], None, "The train data holds no examples"),
        ([ROW, {**ROW, "id": "0"}], None, r"question 0\): the id '0' was used"),
        ([{**ROW, "answers": []}], "1.1", "is unanswerable, which needs `version`=2.0"),
        ([ROW], "3", "`version`='3' is unknown; use one of 1.1, 2.0"),
        (3, None, "The train data must be a path"),
    ],
)
def test_wrong_questions_are_named(data, version, message, tmp_path):
    with pytest.raises(AlbertError, match=message):
        QuestionAnswerer.train("albert_tiny_books", data, version=version, output_dir=tmp_path)
