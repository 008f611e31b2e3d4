# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_race.py from files to files, with the real Estimator and a tiny model."""

from __future__ import annotations

import csv
import json
import math
import random

import pytest
import tensorflow as tf  # noqa: F401  (two logical CPUs are made where it is imported)

from albert_tf.scripts import run_race
from tests.support.builders import tiny_config, vocabulary, write_vocabulary

WORDS = ["sun", "rain", "river", "stone", "bread", "window", "cat", "road", "lamp", "boat"]
VOCABULARY = ["what", "is", "there", "?", *WORDS]
CONFIG = tiny_config(
    len(vocabulary(VOCABULARY)), embedding_size=16, hidden_size=32, num_hidden_layers=2,
    intermediate_size=64, initializer_range=0.2, max_position_embeddings=24,
)  # fmt: skip


def ask(rng, choices):
    """Returns a text of three words, a question, options with one of the words, and its index."""
    words = rng.sample(WORDS, 3 + choices - 1)
    label = rng.randrange(choices)
    options = words[3:]
    options.insert(label, rng.choice(words[:3]))
    return " ".join(words[:3]), rng.choice(["what is there ?", "there is _"]), options, label


def write_race(folder, split, articles):
    """Writes articles with two questions each for middle and for high schools."""
    rng = random.Random(0)
    for group in ("middle", "high"):
        for number in range(articles):
            text, question, options, label = ask(rng, 4)
            others = [word for word in WORDS if word not in text.split()]
            answer = rng.randrange(4)
            more_options = rng.sample(others, 3)
            more_options.insert(answer, rng.choice(text.split()))
            article = {
                "id": f"{group}{number}.txt",
                "article": text,
                "questions": [question, "what is there ?"],
                "options": [options, more_options],
                "answers": ["ABCD"[label], "ABCD"[answer]],
            }
            path = folder / split / group / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(article))


def read_table(path):
    with path.open() as f:
        return list(csv.DictReader(f, delimiter="\t"))


def read(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small RACE with the same articles in train and test; vocabulary, configuration."""
    folder = tmp_path_factory.mktemp("race")
    write_vocabulary(folder, VOCABULARY)
    CONFIG.to_json(str(folder / "config.json"))
    for split in ("train", "dev", "test"):
        write_race(folder / "RACE", split, 4)
    (folder / "RACE/dev/high/3.txt").unlink()
    return folder


@pytest.fixture
def run(run_script):
    """Runs the script in float32, as `run("--do_eval", ...)`."""
    return lambda *given: run_script(run_race, *given, "--precision=float32")


def model_flags(folder):
    files = [f"--albert_config_file={folder}/config.json", f"--vocab_file={folder}/vocab.txt"]
    return [*files, "--max_seq_length=24", "--max_qa_length=8"]


@pytest.fixture
def model(folder, run):
    """Output directory and output of a training run, which is made once."""
    output_dir, log = folder / "model", folder / "log.txt"
    if not log.exists():
        # Batches are made by length, so one may hold a question sixteen times: it takes long.
        done = run(
            "--do_train", "--do_eval", "--do_predict", f"--data_dir={folder}",
            f"--output_dir={output_dir}", *model_flags(folder), "--train_batch_size=16",
            "--learning_rate=3e-3", "--train_step=400",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        log.write_text(done.stdout)
    return output_dir, log.read_text()


def test_a_few_questions_are_learned_by_heart(model):
    output_dir, printed = model
    results = read(output_dir / "eval_results.json")
    assert results["accuracy"] == results["middle_accuracy"] == results["high_accuracy"] == 1.0
    assert results["loss"] < 0.1
    assert results["chance_accuracy"] == 0.25
    assert results["chance_loss"] == pytest.approx(math.log(4))
    assert "train: 16 questions about 8 texts, 4 options each" in printed
    assert f"\n  albert choose {output_dir} red green \\\n    --question=" in printed


def test_predictions_of_the_test_split_have_letters_and_probabilities(model, folder):
    output_dir, _ = model
    rows = read_table(output_dir / "predictions.tsv")
    articles = map(read, (folder / "RACE/test").glob("*/*.txt"))
    labels = {f"{a['id']}-{i}": label for a in articles for i, label in enumerate(a["answers"])}
    assert {row["id"]: row["prediction"] for row in rows} == labels
    for row in rows:
        probabilities = {letter: float(row[letter]) for letter in "ABCD"}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert max(probabilities, key=probabilities.get) == row["prediction"]
    assert read(output_dir / "predict_results.json")["accuracy"] == 1.0


def test_a_model_directory_alone_predicts_questions_with_any_number_of_options(
    model, folder, run, tmp_path
):
    output_dir, _ = model
    before = {row["id"]: row for row in read_table(output_dir / "predictions.tsv")}
    article = read(folder / "RACE/test/middle/0.txt")
    question = {"id": "seen", "context": article["article"], "question": article["questions"][1]}
    rows = [
        {**question, "options": article["options"][1]},
        {**question, "id": "alike", "options": ["sun"] * 4},
    ]
    path = tmp_path / "new.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict = ["--do_predict", f"--output_dir={output_dir}"]
    done = run(*predict, f"--predict_file={path}")
    assert done.returncode == 0, done.stderr
    first, second = read_table(output_dir / "predictions.tsv")
    for letter in "ABCD":
        expected = float(before["middle0.txt-1"][letter])
        assert float(first[letter]) == pytest.approx(expected, abs=1e-4)
        assert float(second[letter]) == pytest.approx(0.25, abs=1e-5)

    label = "ABCD".index(article["answers"][1])
    kept = [article["options"][1][label], article["options"][1][label - 1]]
    path.write_text(json.dumps({**question, "options": kept}))
    done = run(*predict, f"--predict_file={path}")
    assert done.returncode == 0, done.stderr
    (only,) = read_table(output_dir / "predictions.tsv")
    assert list(only) == ["id", "prediction", "A", "B"]
    assert only["prediction"] == "A"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do"),
        (["--do_train"], "--do_train needs --train_file"),
        (["--do_predict", "--predict_file={folder}/new.jsonl"], "out does not exist; give the"),
    ],
)
def test_errors_are_one_sentence_and_leave_nothing(run, tmp_path, arguments, message):
    question = {"question": "what is there ?", "options": ["sun", "rain"], "label": 0}
    (tmp_path / "new.jsonl").write_text(json.dumps(question))
    arguments = [argument.format(folder=tmp_path) for argument in arguments]
    done = run(f"--output_dir={tmp_path}/out", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
