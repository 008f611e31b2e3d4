# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import json
import random
import subprocess
import sys

import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.data import Answers, read_squad
from albert_tf.tasks.squad.scoring import (
    f1,
    find_best_thresholds,
    normalize_answer,
    score,
    score_answers,
)
from tests.support.cases import slow


def official(folder, version, data, predictions, *options):
    """Returns the scores that the official script prints."""
    script = folder / f"evaluate-v{version}.py"
    command = [sys.executable, str(script), str(data), str(predictions), *map(str, options)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def random_predictions(questions, seed):
    """Gold answers, parts of contexts and nothing; odds that know something, with ties."""
    rng = random.Random(seed)
    predictions, odds = {}, {}
    for question in questions:
        words = question.context.split()
        begin = rng.randrange(len(words))
        texts = ["", " ".join(words[begin : begin + rng.randrange(1, 6)]), "The, an a!"]
        texts += [rng.choice(question.answers).text] * 2 if question.answers else []
        predictions[question.id] = rng.choice(texts)
        odds[question.id] = round(rng.gauss(0 if question.answers else 1, 1.5), 1 + seed % 3)
    return predictions, odds


def assert_equal(ours, theirs):
    assert list(ours) == list(theirs)
    assert ours == pytest.approx(theirs, abs=1e-9, rel=0)


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("version", "name", "published"),
    [
        (
            "1.1",
            "1.1_Logistic_Regression_Baseline.json",
            {"exact_match": 40.142, "f1": 50.982},
        ),
        ("2.0", "v2.0_nlnet.json", {"exact": 75.828, "f1": 78.778}),
    ],
)
def test_published_predictions_score_as_published(squad_files, version, name, published):
    data, path = squad_files / f"dev-v{version}.json", squad_files / "predictions" / name
    questions = read_squad(str(data), version=version)
    result = score(questions, json.loads(path.read_text()), version=version)
    assert_equal(result, official(squad_files, version, data, path))
    assert {key: result[key] for key in published} == pytest.approx(published, abs=5e-4)


@pytest.mark.realdata
@pytest.mark.parametrize("seed", [0, *slow(1, 2)])
def test_random_predictions_score_as_the_official_scripts_say(squad_files, tmp_path, seed):
    for version in ("1.1", "2.0"):
        data = squad_files / f"dev-v{version}.json"
        questions = read_squad(str(data), version=version)
        predictions, odds = random_predictions(questions, seed)
        if version == "1.1":
            predictions.pop(questions[seed].id)
        (tmp_path / "predictions.json").write_text(json.dumps(predictions))
        (tmp_path / "odds.json").write_text(json.dumps(odds))
        # Where the script has odds, it does not count answers whose odds exceed a threshold.
        options = ["-n", tmp_path / "odds.json", "-t", seed - 0.5] if version == "2.0" else []
        expected = official(squad_files, version, data, tmp_path / "predictions.json", *options)
        if version == "1.1":
            assert_equal(score(questions, predictions, version=version), expected)
        else:
            answers = Answers({name: [{"text": text}] for name, text in predictions.items()}, odds)
            found = score_answers(questions, answers, version, seed - 0.5)
            assert_equal({name: found[name] for name in expected}, expected)
            assert expected["best_f1"] > 50.08


def test_normalisation_and_word_overlap():
    assert normalize_answer("The  Cat's, an A-team (the) thea") == "cats ateam thea"
    assert f1("red cat cat", "the cat sat cat down") == pytest.approx(2 * (2 / 3) * 0.5 / (7 / 6))
    assert f1("", "cat") == f1("the", "the") == 0


def test_2_0_scores_by_kind(ask):
    questions = [ask("x y", "x"), ask("x y", "y"), ask("x y", is_impossible=True)]
    predictions = {"q1": "x", "q2": "x", "q3": "y"}
    result = score(questions, predictions, version="2.0")
    assert (result["exact"], result["total"]) == (pytest.approx(100 / 3), 3)
    assert (result["HasAns_exact"], result["NoAns_exact"]) == (50.0, 0.0)
    odds = {"q1": -5.0, "q2": 0.0, "q3": 5.0}
    best = find_best_thresholds(questions, predictions, odds)
    assert (best["best_f1"], best["best_f1_thresh"]) == (pytest.approx(200 / 3), -5.0)


def f1_with(questions, predictions, odds, threshold):
    kept = {name: text if odds[name] <= threshold else "" for name, text in predictions.items()}
    return score(questions, kept, version="2.0")["f1"]


def test_the_threshold_to_apply_gives_the_best_f1_of_all(ask):
    rng = random.Random(3)
    for _ in range(200):
        questions = [
            ask("x y z", "x y") if rng.random() < 0.5 else ask("x y z", is_impossible=True)
            for _ in range(8)
        ]
        predictions = {q.id: rng.choice(["x", "x y", "z", ""]) for q in questions}
        odds = {q.id: float(rng.randrange(5)) for q in questions}
        threshold = find_best_thresholds(questions, predictions, odds)["null_threshold"]
        best = max(f1_with(questions, predictions, odds, t) for t in range(-1, 6))
        assert f1_with(questions, predictions, odds, threshold) == pytest.approx(best)
        # The official one may separate equal odds, and so be better than any real threshold.
        assert find_best_thresholds(questions, predictions, odds)["best_f1"] >= best - 1e-9


def test_if_no_answer_is_best_the_threshold_is_below_all_odds(ask):
    questions = [ask("x y", is_impossible=True), ask("x y", "x")]
    predictions, odds = {"q1": "x", "q2": "y"}, {"q1": -3.0, "q2": -2.0}
    best = find_best_thresholds(questions, predictions, odds)
    assert best["best_f1_thresh"] == 0.0 and best["null_threshold"] < -3.0


def test_the_threshold_lies_between_the_odds_of_two_questions(ask):
    questions = [ask("x y", "x"), ask("x y", is_impossible=True)]
    predictions, odds = {"q1": "x", "q2": "y"}, {"q1": -3.0, "q2": -2.0}
    assert find_best_thresholds(questions, predictions, odds)["null_threshold"] == -2.5
    assert find_best_thresholds(questions[:1], predictions, odds)["null_threshold"] > -3.0


@pytest.mark.parametrize(
    ("predictions", "version", "null_odds", "message"),
    [
        ({"q1": "x"}, "2.0", None, "lack 1 of 2 questions, such as q2"),
        ({"other": "x"}, "1.1", None, "lack 2 of 2 questions, such as q1"),
        ({"q1": 3, "q2": "y"}, "1.1", None, "question q1 is 3; a string"),
        ({"q1": "x", "q2": "y"}, "2.0", {"q1": 0.0}, "null odds lack question q2"),
        ({"q1": "x", "q2": "y"}, "2.0", {"q1": 0.0, "q2": [1]}, "null odds must be numbers"),
    ],
)
def test_predictions_and_odds_of_other_questions_are_errors(
    ask, predictions, version, null_odds, message
):
    questions = [ask("x y", "x"), ask("x y", "y")]
    with pytest.raises(AlbertError, match=message):
        score(questions, predictions, version=version)
        find_best_thresholds(questions, predictions, null_odds)


def test_1_1_needs_gold_answers(ask):
    with pytest.raises(AlbertError, match=r"data\.json: question q1 has no answers"):
        score([ask("x y")], {"q1": "x"}, version="1.1")


def answers(texts, odds):
    names = [f"q{i}" for i in range(1, len(texts) + 1)]
    nbest = {name: [{"text": text}] for name, text in zip(names, texts)}
    return Answers(nbest, dict(zip(names, odds)))


def test_1_1_scores_an_answer_to_every_question(ask):
    questions = [ask("the cafe", "the", "cafe"), ask("fine river", "fine river")]
    results = score_answers(questions, answers(["the cafe", "river"], [9.0, 9.0]), "1.1", None)
    assert results == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 2)}


def test_2_0_uses_the_best_threshold_unless_one_is_given(ask):
    questions = [ask("cafe", "cafe"), ask("fine", "fine"), *(ask("river"), ask("a"))]
    found = answers(["cafe", "fine", "river", "a"], [-3.0, 1.0, 0.5, 4.0])
    results = score_answers(questions, found, "2.0", None)
    # Answering only the first is as good as answering the first three; the first comes first.
    assert (results["f1"], results["best_f1"], results["null_threshold"]) == (75, 75, -1.25)
    assert results["all_null_f1"] == 50
    results = score_answers(questions, found, "2.0", 1.0)
    assert (results["f1"], results["best_f1"], results["null_threshold"]) == (75, 75, 1)
    assert (results["HasAns_f1"], results["NoAns_f1"]) == (100, 50)
    assert score_answers(questions, found, "2.0", -10.0)["f1"] == results["all_null_f1"]
