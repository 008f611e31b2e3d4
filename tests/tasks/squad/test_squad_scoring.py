# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import json
import random
import subprocess
import sys

import pytest

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
        ("1.1", "1.1_Logistic_Regression_Baseline.json", {"exact_match": 40.142, "f1": 50.982}),
        ("2.0", "v2.0_nlnet.json", {"exact": 75.828, "f1": 78.778}),
    ],
)
def test_published_predictions_score_as_published(squad_files, version, name, published):
    data, path = squad_files / f"dev-v{version}.json", squad_files / "predictions" / name
    questions = read_squad(str(data))
    # Those of 1.1 lack 13 questions, which SQuAD's script counts as wrong.
    predictions = {question.id: "" for question in questions} | json.loads(path.read_text())
    result = score(questions, predictions, version=version)
    assert_equal(result, official(squad_files, version, data, path))
    assert {key: result[key] for key in published} == pytest.approx(published, abs=5e-4)


@pytest.mark.realdata
@pytest.mark.parametrize("seed", [0, *slow(1, 2)])
def test_random_predictions_score_as_the_official_scripts_say(squad_files, tmp_path, seed):
    for version in ("1.1", "2.0"):
        data = squad_files / f"dev-v{version}.json"
        questions = read_squad(str(data))
        predictions, odds = random_predictions(questions, seed)
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


def f1_with(questions, predictions, odds, threshold):
    kept = {name: text if odds[name] <= threshold else "" for name, text in predictions.items()}
    return score(questions, kept, version="2.0")["f1"]


def official_best(questions, predictions, scores, odds):
    """find_best_thresh of evaluate-v2.0.py: all of its algorithm."""
    current = best = sum(not question.answers for question in questions)
    threshold, by_id = 0.0, {question.id: question for question in questions}
    for name in sorted(odds, key=lambda name: odds[name]):
        if name in scores:
            current += scores[name] if by_id[name].answers else -bool(predictions[name])
        if current > best:
            best, threshold = current, odds[name]
    return 100.0 * best / len(scores), threshold


def test_the_best_thresholds_at_ties_are_official_and_the_one_to_apply_is_the_best_of_all(ask):
    rng = random.Random(3)
    for _ in range(300):
        questions = [
            ask("x y z", "x y") if rng.random() < 0.5 else ask("x y z", is_impossible=True)
            for _ in range(rng.randrange(1, 9))
        ]
        predictions = {q.id: rng.choice(["x", "x y", "z", ""]) for q in questions}
        odds = {name: float(rng.randrange(5)) for name in predictions}
        found = find_best_thresholds(questions, predictions, odds)
        golds = {q.id: "x y" if q.answers else "" for q in questions}
        exact = {name: float(predictions[name] == gold) for name, gold in golds.items()}
        overlap = {k: f1(predictions[k], gold) if gold else exact[k] for k, gold in golds.items()}
        for metric, scores in (("exact", exact), ("f1", overlap)):
            best = official_best(questions, predictions, scores, odds)
            assert (found[f"best_{metric}"], found[f"best_{metric}_thresh"]) == best
        best = max(f1_with(questions, predictions, odds, t) for t in range(-1, 6))
        applied = f1_with(questions, predictions, odds, found["null_threshold"])
        assert applied == pytest.approx(best)


def answers(texts, odds):
    names = [f"q{i}" for i in range(1, len(texts) + 1)]
    nbest = {name: [{"text": text}] for name, text in zip(names, texts)}
    return Answers(nbest, dict(zip(names, odds)))


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
