# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_squad.py from files to files, with the real Estimator and a tiny model."""

from __future__ import annotations

import contextlib
import io
import json
import shutil

import pytest

from albert_tf.errors import AlbertError
from albert_tf.scripts import run_squad
from albert_tf.tasks.squad.answerer import QuestionAnswerer
from albert_tf.tasks.squad.data import read_squad
from albert_tf.tasks.squad.scoring import score
from tests.support.builders import tiny_config, vocabulary, write_vocabulary
from tests.support.cases import slow
from tests.support.script_flags import parsed_flags

PEOPLE = {"anna": "rome", "ben": "oslo", "carla": "lima", "dora": "kyiv"}
WORDS = ["lives", "in", ".", "where", "does", "live", "?", *PEOPLE, *PEOPLE.values()]
CONFIG = tiny_config(
    len(vocabulary(WORDS)), embedding_size=16, hidden_size=32, num_hidden_layers=2,
    intermediate_size=64, initializer_range=0.3,
)  # fmt: skip


def squad_json(version, labelled=True):
    """Paragraphs about two people each; 2.0 also asks about people who are not mentioned."""
    paragraphs = []
    names = list(PEOPLE)
    for first, second in zip(names, [*names[1:], names[0]]):
        context = f"{first.title()} lives in {PEOPLE[first]}.  {second.title()} lives in "
        context += f"{PEOPLE[second].title()}."
        asked = [first, second]
        if version == "2.0":
            asked += [name for name in names if name not in asked]
        qas = []
        for name in asked:
            qa = {"id": f"{first}-{name}", "question": f"Where does {name.title()} live?"}
            if labelled:
                start = context.lower().find(f"{name} lives in ")
                answers = []
                if start >= 0:
                    start += len(f"{name} lives in ")
                    text = context[start : start + len(PEOPLE[name])]
                    answers = [{"text": text, "answer_start": start}]
                qa.update(answers=answers, is_impossible=start < 0)
            qas.append(qa)
        paragraphs.append({"context": context, "qas": qas})
    return {"version": version, "data": [{"title": "Homes", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squad")
    write_vocabulary(folder, WORDS)
    CONFIG.to_json(str(folder / "config.json"))
    for version in ("1.1", "2.0"):
        content = squad_json(version)
        (folder / f"eval-{version}.json").write_text(json.dumps(content))
        answer = {"text": "rome" if version == "1.1" else "Mars", "answer_start": 0}
        more = {"id": "more", "question": "Where does Anna live?", "answers": [answer]}
        content["data"][0]["paragraphs"][0]["qas"].append(more)
        (folder / f"train-{version}.json").write_text(json.dumps(content))
        content = json.dumps(squad_json(version, labelled=False))
        (folder / f"unlabelled-{version}.json").write_text(content)
    return folder


def training_flags(folder, version):
    return {
        "version": version,
        "do_train": True,
        "train_file": folder / f"train-{version}.json",
        "albert_config_file": folder / "config.json",
        "vocab_file": folder / "vocab.txt",
        "max_seq_length": 32,
        "max_query_length": 8,
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "learning_rate": 3e-3,
        "train_step": 300,
        "precision": "float32",  # With bfloat16 it takes more steps.
        "warmup_step": 20,
        "random_seed": 1,  # Not every seed learns all questions in so few steps.
        "do_eval": True,
        "eval_file": folder / f"eval-{version}.json",
        "output_dir": folder / f"model-{version}",
    }


def command_line(arguments):
    return [f"--{name}={value}" for name, value in arguments.items()]


@pytest.fixture(scope="module", params=[*slow("1.1", "2.0 plain"), "2.0"])
def trained(request, folder):
    """Version, model folder and output of a run that trained and evaluated."""
    version, *plain = request.param.split()
    arguments = training_flags(folder, version)
    if plain:
        arguments |= {"plain_head": True, "output_dir": folder / "model-plain"}
        arguments |= {"learning_rate": 1e-3, "train_step": 700}
    with (
        parsed_flags(run_squad.define_flags, *command_line(arguments)),
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        run_squad.main.__wrapped__()
    return version, arguments["output_dir"], printed.getvalue()


def read(path):
    return json.loads(path.read_text())


@pytest.fixture
def run(run_script):
    """Runs the script with an action and flags, as `run("do_eval", output_dir=...)`."""

    def run(*actions, **given):
        actions = [f"--{action}" for action in actions]
        return run_script(run_squad, *actions, *command_line(given))

    return run


def test_a_handful_of_questions_is_learned_and_results_are_written(trained, folder):
    version, output_dir, printed = trained
    results = read(output_dir / "eval_results.json")
    exact = "exact_match" if version == "1.1" else "exact"
    assert results[exact] == 100 and results["f1"] == 100
    questions = read_squad(str(folder / f"eval-{version}.json"))
    predictions = read(output_dir / "predictions.json")
    assert score(questions, predictions, version=version)["f1"] == 100
    nbest = read(output_dir / "nbest_predictions.json")
    contexts = {question.id: question.context for question in questions}
    for name, entries in nbest.items():
        for entry in entries:
            assert contexts[name][entry["start"] : entry["end"]] == entry["text"]
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1)
    assert (output_dir / "null_odds.json").exists() == (version == "2.0")
    if version == "2.0":
        assert results["all_null_f1"] == 50
        kept = read(output_dir / "thresholds.json")["thresholds"]
        assert kept == {"null_threshold": results["null_threshold"]}
        left_out = (output_dir / "left_out_train.txt").read_text()
        assert "train: 16 questions, 16 windows; 1 are left out (left_out_*.txt in" in printed
        assert "has the answer 'Mars', which is not in the context as whole words." in left_out
        assert left_out.strip() in printed and left_out.count("\n") == 1
        assert "all_null_f1" in printed and "Threshold on the null odds" in printed


def test_a_model_directory_alone_predicts_with_its_threshold(trained, folder, run, tmp_path):
    version, output_dir, _ = trained
    before = read(output_dir / "predictions.json")
    nbest = read(output_dir / "nbest_predictions.json")
    (output_dir / "predictions.json").unlink()
    # Batches of another size and length than in the evaluation that made `before`.
    given = {"output_dir": output_dir, "eval_batch_size": 3,
             "predict_file": folder / f"unlabelled-{version}.json"}  # fmt: skip
    done = run("do_predict", **given)
    assert done.returncode == 0, done.stderr
    assert read(output_dir / "predictions.json") == before
    for name, entries in read(output_dir / "nbest_predictions.json").items():
        best, former = entries[0], nbest[name][0]
        assert best["probability"] == pytest.approx(former["probability"], abs=1e-5)
    if version == "2.0":
        threshold = read(output_dir / "thresholds.json")["thresholds"]["null_threshold"]
        assert f"Threshold on the null odds: {threshold:.4f}." in done.stdout
        done = run("do_predict", **given, null_score_diff_threshold=-1e9)
        assert set(read(output_dir / "predictions.json").values()) == {""}
        assert "Threshold on the null odds: -1000000000.0000." in done.stdout


@pytest.mark.parametrize("trained", ["2.0"], indirect=True)
def test_a_threshold_of_other_weights_is_not_used(trained, tmp_path):
    _, output_dir, _ = trained
    kept = read(output_dir / "thresholds.json")
    threshold = kept["thresholds"]["null_threshold"]
    assert QuestionAnswerer.load(str(output_dir)).threshold == threshold != 0
    copy = shutil.copytree(output_dir, tmp_path / "copy")
    assert QuestionAnswerer.load(str(copy)).threshold == threshold
    (copy / "thresholds.json").write_text(json.dumps({**kept, "checkpoint": "checkpoints/ckpt-1"}))
    assert QuestionAnswerer.load(str(copy)).threshold == 0


@pytest.mark.smoke
def test_an_answerer_finds_answers_in_texts_of_several_windows(trained):
    version, output_dir, _ = trained
    answerer = QuestionAnswerer.load(str(output_dir), max_seq_length=20, doc_stride=4)
    context = "Anna lives in Rome.  Ben lives in Oslo. "
    found = answerer.answer("Where does Anna live?", context)
    assert (found.text, found.answerable) == ("Rome", True)
    with pytest.raises(AlbertError, match="The context must be a string, not None"):
        answerer.answer("Where does Anna live?", None)
    # The first part and the second part of this text are in different windows.
    longer = "Carla lives in Lima.  Dora lives in Kyiv. " + context
    found = answerer.answer("Where does Anna live?", longer)
    assert longer[found.start : found.end] == found.text
    assert 0 < found.probability <= 1
    if version == "2.0":
        answerer.threshold = -1e9
        assert not answerer.answer("Where does Anna live?", context).answerable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": "none.json"}, "none.json does not exist"),
        (
            {"eval_file": "unlabelled-1.1.json"},
            "has no answer, which training and evaluation need; use --",
        ),
        ({"null_score_diff_threshold": 0.0}, "--null_score_diff_threshold is for SQuAD 2.0"),
        ({"do_train": False, "output_dir": "nowhere"}, "nowhere does not exist"),
        ({"max_seq_length": 10}, "leaves no room for the paragraph"),
    ],
)
def test_errors_are_one_sentence(folder, run, tmp_path, changes, message):
    arguments = {**training_flags(folder, "1.1"), "output_dir": tmp_path / "model"}
    for name, value in changes.items():
        arguments[name] = folder / value if name.endswith(("file", "dir")) else value
    done = run(**{name: value for name, value in arguments.items() if value is not None})
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and message in errors[0], done.stderr
    assert not (tmp_path / "model" / "checkpoints").exists()
