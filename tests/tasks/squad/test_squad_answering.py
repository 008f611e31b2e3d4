# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Which single questions count as answerable. tests/test_run_squad.py answers some."""

from __future__ import annotations

import math

import pytest

from albert_tf.tasks.squad.answering import QuestionAnswerer
from albert_tf.tasks.squad.features import SquadSpec
from albert_tf.tasks.squad.task import SquadTask


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_a_question_is_answerable_up_to_the_threshold_of_its_null_odds(config, tokenizer, version):
    spec = SquadSpec(version, max_seq_length=32, max_query_length=8)
    task = SquadTask(config, tokenizer, spec, 0.0)
    answerer = QuestionAnswerer(task, task.build_model(), 0.0)
    odds = answerer.answer("a b", "c d e f").null_odds
    found = []
    for threshold in (math.nextafter(odds, -math.inf), odds, math.nextafter(odds, math.inf)):
        answerer.threshold = threshold
        found.append(answerer.answer("a b", "c d e f").answerable)
    assert found == ([True] * 3 if version == "1.1" else [False, True, True])
