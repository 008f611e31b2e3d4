# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import math

import numpy as np
import pytest

from albert_tf.tasks.squad.data import predictions
from albert_tf.tasks.squad.task import SquadSpec
from albert_tf.tasks.squad.windows import extract_answers, make_windows, shows_most


@pytest.fixture
def one_window(ask, tokenizer):
    """[CLS] j [SEP] a b c d [SEP]: the context has the positions 3, 4, 5, 6."""
    return make_windows([ask("a b c d", question="j")], tokenizer, SquadSpec("1.1"))


def span_outputs(start, end, k=None):
    """Outputs of a model for logits [n, S]: the k best starts and ends."""
    start, end = np.array(start, float), np.array(end, float)
    starts, ends = (np.argsort(-x, axis=1, kind="stable")[:, :k] for x in (start, end))
    return {
        "starts": starts,
        "start_scores": np.take_along_axis(start, starts, axis=1),
        "ends": ends[:, None],
        "end_scores": np.take_along_axis(end, ends, axis=1)[:, None],
    }


def beam_outputs(starts, ends, cls):
    """Outputs of a model for lists of (position, score): [n, K1, 2] and [n, K1, K2, 2]."""
    starts, ends = np.array(starts, np.float32), np.array(ends, np.float32)
    return {
        "starts": starts[..., 0].astype(np.int32),
        "start_scores": starts[..., 1],
        "ends": ends[..., 0].astype(np.int32),
        "end_scores": ends[..., 1],
        "null_odds": np.array(cls, np.float32),
    }


def logits(length=8, **values):
    """Zeros except at the positions p3=, p4=, …"""
    row = [0.0] * length
    for name, value in values.items():
        row[int(name[1:])] = value
    return row


def extract(asked, outputs, **settings):
    # The lengths of `two_windows`; those of other windows do not matter for their search.
    lengths = {"max_seq_length": 8, "doc_stride": 2, "max_query_length": 1}
    spec = SquadSpec("2.0" if "null_odds" in outputs else "1.1", **{**lengths, **settings})
    return extract_answers(asked, outputs, spec)


def test_the_best_span_comes_first_with_its_characters_and_probability(one_window):
    outputs = span_outputs([logits(p4=5.0, p3=3.0)], [logits(p5=4.0)])
    answers = extract(one_window, outputs, n_best_size=2)
    best, second = answers.nbest["q1"]
    assert (best["text"], best["start"], best["end"], best["score"]) == ("b c", 2, 5, 9.0)
    assert (second["text"], second["score"]) == ("a b c", 7.0)
    assert best["probability"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert best["probability"] + second["probability"] == pytest.approx(1)
    assert answers.null_odds == {}
    assert predictions(answers, None) == {"q1": "b c"}


def brute_force(asked, outputs, question, spec):
    """All spans of a question by definition: (score, text) with the best score of each text."""
    scores, windows = {}, asked.windows
    for w in np.flatnonzero(windows.question == question):
        shift = windows.first[w] - windows.context_start[w]
        for i, j in itertools.product(range(outputs["starts"].shape[1]), repeat=2):
            start, end = outputs["starts"][w, i] + shift, outputs["ends"][w, 0, j] + shift
            if not windows.first[w] <= start <= end < windows.first[w] + windows.size[w]:
                continue
            if end - start >= spec.max_answer_length:
                continue
            if not shows_most(windows, np.array([w]), np.array([[start]])).numpy().item():
                continue
            text = asked.text(question, start, end)[0]
            score = outputs["start_scores"][w, i] + outputs["end_scores"][w, 0, j]
            scores[text] = max(scores.get(text, -np.inf), score)
    return sorted(((score, text) for text, score in scores.items()), reverse=True)


def test_answers_of_many_windows_are_those_of_an_exhaustive_search(ask, tokenizer, monkeypatch):
    monkeypatch.setattr("albert_tf.tasks.squad.windows._CHUNK", 5)
    rng = np.random.default_rng(5)
    contexts = [" ".join(rng.choice(list("abcdefghij"), size=n)) for n in (3, 20, 11, 40)]
    settings = {"max_seq_length": 16, "doc_stride": 4, "max_query_length": 5}
    spec = SquadSpec("1.1", n_best_size=7, max_answer_length=4, **settings)
    asked = make_windows([ask(c) for c in contexts], tokenizer, spec)
    number = len(asked.windows.question)
    assert number > 12
    outputs = span_outputs(*(rng.normal(size=(number, 16)) for _ in range(2)), k=8)
    answers = extract_answers(asked, outputs, spec)
    for index, question in enumerate(asked.questions):
        expected = brute_force(asked, outputs, index, spec)[:7]
        found = [(entry["score"], entry["text"]) for entry in answers.nbest[question.id]]
        assert found == pytest.approx(expected)
        for entry in answers.nbest[question.id]:
            assert question.context[entry["start"] : entry["end"]] == entry["text"]


def test_a_question_without_a_possible_span_is_not_answered(one_window):
    # The two best starts and ends: the ends come before the start in the context.
    outputs = span_outputs([logits(p0=9.0, p6=5.0)], [logits(p0=9.0, p3=5.0)], k=2)
    answers = extract(one_window, outputs)
    (only,) = answers.nbest["q1"]
    assert (only["text"], only["start"], only["end"], only["probability"]) == ("", 0, 0, 1.0)
    assert json.loads(json.dumps(only, allow_nan=False)) == only
    assert predictions(answers, None) == {"q1": ""}


@pytest.mark.realdata
def test_a_piece_of_white_space_is_no_answer(ask, released):
    asked = make_windows([ask("漢 b", question="j")], released, SquadSpec("1.1"))
    first = int(asked.windows.context_start[0])
    assert asked.text(0, 0, 0)[0] == ""
    high = logits(length=first + 8, **{f"p{first}": 9.0})
    outputs = span_outputs([high], [high])
    assert extract(asked, outputs).nbest["q1"][0]["text"] == "漢"


def test_ends_of_a_beam_belong_to_their_start(one_window):
    ends = [[[(4, -1.0), (3, -3.0)], [(6, -0.5), (5, -0.25)]]]
    outputs = beam_outputs([[(3, -1.0), (5, -2.0)]], ends, cls=[0.75])
    answers = extract(one_window, outputs)
    found = [(entry["text"], entry["score"]) for entry in answers.nbest["q1"]]
    assert found == [("a b", -2.0), ("c", -2.25), ("c d", -2.5), ("a", -4.0)]
    assert answers.null_odds == {"q1": 0.75}
