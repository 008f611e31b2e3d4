# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import itertools
import math

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.answers import Answers, extract_answers, predictions
from albert_tf.tasks.squad.task import SquadSpec
from albert_tf.tasks.squad.windows import make_windows
from tests.tasks.squad.conftest import lengths

FORBIDDEN = -1e30


@pytest.fixture
def one_window(ask, tokenizer):
    """[CLS] j [SEP] a b c d [SEP]: the context has the positions 3, 4, 5, 6."""
    return make_windows([ask("a b c d", question="j")], tokenizer, SquadSpec("1.1"))


@pytest.fixture
def two_windows(ask, tokenizer):
    """The windows "a b c d" and "c d e f" of one context."""
    return make_windows(
        [ask("a b c d e f", question="j")],
        tokenizer,
        lengths(8, 2, 1),
    )


def span_outputs(start, end, null=0.0, k=None):
    """Outputs of a model for logits [n, S]: the k best starts and ends."""
    start, end = np.array(start, float), np.array(end, float)
    starts, ends = (np.argsort(-x, axis=1, kind="stable")[:, :k] for x in (start, end))
    return {
        "starts": starts,
        "start_scores": np.take_along_axis(start, starts, axis=1),
        "ends": ends[:, None],
        "end_scores": np.take_along_axis(end, ends, axis=1)[:, None],
        "null_logit": np.broadcast_to(np.array(null, float), len(start)),
    }


def beam_outputs(starts, ends, cls):
    """Outputs of a model for lists of (position, score): [n, K1, 2] and [n, K1, K2, 2]."""
    starts, ends = np.array(starts, np.float32), np.array(ends, np.float32)
    return {
        "starts": starts[..., 0].astype(np.int32),
        "start_scores": starts[..., 1],
        "ends": ends[..., 0].astype(np.int32),
        "end_scores": ends[..., 1],
        "null_logit": np.array(cls, np.float32),
    }


def logits(length=8, **values):
    """Zeros except at the positions p3=, p4=, …"""
    row = [0.0] * length
    for name, value in values.items():
        row[int(name[1:])] = value
    return row


def extract(windows, outputs, head="span", **settings):
    return extract_answers(windows, outputs, SquadSpec("1.1", head, **settings))


def test_the_best_span_comes_first_with_its_characters_and_probability(one_window):
    outputs = span_outputs([logits(p4=5.0, p3=3.0)], [logits(p5=4.0)], null=2.0)
    answers = extract(one_window, outputs, n_best_size=2)
    best, second = answers.nbest["q1"]
    assert (best["text"], best["start"], best["end"], best["score"]) == ("b c", 2, 5, 9.0)
    assert (second["text"], second["score"]) == ("a b c", 7.0)
    assert best["probability"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert best["probability"] + second["probability"] == pytest.approx(1)
    assert answers.null_odds == {"q1": 2.0 - 9.0}
    assert predictions(answers, None) == {"q1": "b c"}
    assert predictions(answers, -7.0) == {"q1": "b c"}
    assert predictions(answers, -7.1) == {"q1": ""}


def test_question_cls_and_sep_are_no_answers(one_window):
    high = logits(p0=9.0, p1=9.0, p2=9.0, p7=9.0, p5=1.0)
    (best, *_) = extract(one_window, span_outputs([high], [high])).nbest["q1"]
    assert best["text"] == "c"


def test_ends_follow_starts_within_the_longest_answer(one_window):
    outputs = span_outputs([logits(p5=5.0)], [logits(p3=5.0)])
    for entry in extract(one_window, outputs, max_answer_length=2).nbest["q1"]:
        assert 1 <= len(entry["text"].split()) <= 2
        assert entry["start"] < entry["end"]


def test_equal_texts_are_one_answer(ask, tokenizer):
    windows = make_windows([ask("a b a b", question="j")], tokenizer, SquadSpec("1.1"))
    outputs = span_outputs([logits(p3=3.0, p5=2.0)], [logits(p3=1.0, p5=1.0)])
    entries = extract(windows, outputs).nbest["q1"]
    texts = [entry["text"] for entry in entries]
    assert len(texts) == len(set(texts))
    assert (texts[0], entries[0]["start"], entries[0]["score"]) == ("a", 0, 4.0)


def brute_force(windows, outputs, question, longest):
    """All spans of a question by definition: (score, text) with the best score of each text."""
    scores = {}
    for w in np.flatnonzero(windows.question_index == question):
        begin, size = windows.context_start[w], windows.num_pieces[w]
        for i, j in itertools.product(range(outputs["starts"].shape[1]), repeat=2):
            start, end = outputs["starts"][w, i], outputs["ends"][w, 0, j]
            if not begin <= start <= end < begin + size or end - start >= longest:
                continue
            if not windows.is_max_context(w)[start - begin]:
                continue
            text = windows.text(w, start, end)[0]
            score = outputs["start_scores"][w, i] + outputs["end_scores"][w, 0, j]
            scores[text] = max(scores.get(text, -np.inf), score)
    return sorted(((score, text) for text, score in scores.items()), reverse=True)


def test_answers_of_many_windows_are_those_of_an_exhaustive_search(ask, tokenizer):
    rng = np.random.default_rng(5)
    contexts = [" ".join(rng.choice(list("abcdefghij"), size=n)) for n in (3, 20, 11, 40)]
    windows = make_windows(
        [ask(c) for c in contexts],
        tokenizer,
        lengths(16, 4, 5),
    )
    assert len(windows) > 12
    scores = [rng.normal(size=(len(windows), 16)) for _ in range(2)]
    outputs = span_outputs(*scores, null=rng.normal(size=len(windows)), k=8)
    answers = extract(windows, outputs, n_best_size=7, max_answer_length=4)
    for index, asked in enumerate(windows.questions):
        expected = brute_force(windows, outputs, index, 4)[:7]
        found = [(entry["score"], entry["text"]) for entry in answers.nbest[asked.id]]
        assert found == pytest.approx(expected)
        for entry in answers.nbest[asked.id]:
            assert asked.context[entry["start"] : entry["end"]] == entry["text"]


def test_null_odds_are_the_smallest_of_the_windows(two_windows):
    assert two_windows.first_piece.tolist() == [0, 2]
    scores = [logits(p3=1.0), logits(p6=2.0)]
    answers = extract(two_windows, span_outputs(scores, scores, null=[5.0, 1.0]))
    assert answers.null_odds["q1"] == min(5.0 - 2.0, 1.0 - 4.0)
    outputs = beam_outputs([[(3, 0.0)]] * 2, [[[(3, 0.0)]]] * 2, cls=[3.0, -1.5])
    assert extract(two_windows, outputs, "beam").null_odds == {"q1": -1.5}


def test_a_span_starts_in_the_window_that_shows_most_around_it(two_windows):
    # "c" is at the edge of the second window, where its score is higher.
    scores = [logits(p5=1.0), logits(p3=9.0)]
    assert two_windows.is_max_context(0).tolist() == [True, True, True, False]
    assert two_windows.is_max_context(1).tolist() == [False, True, True, True]
    best = extract(two_windows, span_outputs(scores, scores)).nbest["q1"][0]
    assert (best["text"], best["score"]) == ("c", 2.0)


def test_a_question_without_a_span_is_answered_with_its_best_start(one_window):
    # The two best starts and ends: the ends come before the start in the context.
    outputs = span_outputs([logits(p0=9.0, p6=5.0)], [logits(p0=9.0, p3=5.0)], null=18.0, k=2)
    answers = extract(one_window, outputs)
    (only,) = answers.nbest["q1"]
    assert (only["text"], only["probability"]) == ("d", 1.0)
    assert np.isfinite(answers.null_odds["q1"]) and answers.null_odds["q1"] > 0
    (release,) = extract(one_window, outputs, compat=True).nbest["q1"]
    assert release["text"] == "empty"


def test_without_a_start_in_the_context_the_answer_is_its_first_piece(one_window):
    outputs = span_outputs([logits(p0=9.0, p1=8.0)], [logits(p0=9.0, p2=8.0)], k=2)
    assert extract(one_window, outputs).nbest["q1"][0]["text"] == "a"


@pytest.mark.realdata
def test_a_piece_of_white_space_is_no_answer(ask, released):
    windows = make_windows([ask("漢 b", question="j")], released, SquadSpec("1.1"))
    first = int(windows.context_start[0])
    assert windows.text(0, first, first)[0] == ""
    high = logits(length=first + 8, **{f"p{first}": 9.0})
    outputs = span_outputs([high], [high])
    assert extract(windows, outputs).nbest["q1"][0]["text"] == "漢"
    assert extract(windows, outputs, compat=True).nbest["q1"][0]["text"] == ""
    only = span_outputs([high], [high], k=1)
    assert extract(windows, only).nbest["q1"][0]["text"] == "漢"


def test_ends_of_a_beam_belong_to_their_start(one_window):
    ends = [[[(4, -1.0), (3, -3.0)], [(6, -0.5), (5, -0.25)]]]
    outputs = beam_outputs([[(3, -1.0), (5, -2.0)]], ends, cls=[0.75])
    answers = extract(one_window, outputs, "beam")
    found = [(entry["text"], entry["score"]) for entry in answers.nbest["q1"]]
    assert found == [("a b", -2.0), ("c", -2.25), ("c d", -2.5), ("a", -4.0)]
    assert answers.null_odds == {"q1": 0.75}


def test_a_beam_at_cls_still_has_an_answer(one_window):
    ends = [[[(0, -0.1), (0, FORBIDDEN)], [(0, -0.1), (3, -1.0)]]]
    outputs = beam_outputs([[(0, -0.1), (4, -2.0)]], ends, cls=[4.0])
    answers = extract(one_window, outputs, "beam")
    assert [entry["text"] for entry in answers.nbest["q1"]] == ["b"]
    release = extract(one_window, outputs, "beam", compat=True)
    assert [entry["text"] for entry in release.nbest["q1"]] == [""]
    assert answers.null_odds == release.null_odds == {"q1": 4.0}


def test_outputs_of_other_windows_are_an_error(one_window):
    outputs = span_outputs([logits()] * 3, [logits()] * 3)
    with pytest.raises(AlbertError, match="predictions for 3 windows, but 1 windows"):
        extract(one_window, outputs)


def test_predictions_compare_the_odds_with_the_threshold():
    entry = {"text": "a", "start": 0, "end": 1, "score": 0.0, "probability": 1.0}
    answers = Answers({"x": [entry], "y": [entry]}, {"x": 0.5, "y": 1.5})
    assert predictions(answers, 1.0) == {"x": "a", "y": ""}
