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

import run_race

WORDS = ["sun", "rain", "river", "stone", "bread", "window", "cat", "road", "lamp", "boat"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", "is", "there", "?", *WORDS]
CONFIG = {
    "vocab_size": len(VOCABULARY),
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.2,
    "max_position_embeddings": 24,
}
SETTINGS = ["--max_seq_length=24", "--max_qa_length=8", "--precision=float32"]


def ask(rng, choices):
    """A text of three words, a question, options of which one is in the text, and its index."""
    words = rng.sample(WORDS, 3 + choices - 1)
    label = rng.randrange(choices)
    options = words[3:]
    options.insert(label, rng.choice(words[:3]))
    return " ".join(words[:3]), rng.choice(["what is there ?", "there is _"]), options, label


def write_race(folder, split, articles, rng):
    """So many articles with two questions each for middle and for high schools."""
    for group in ("middle", "high"):
        for number in range(articles):
            text, *_ = first = ask(rng, 4)
            used = set(text.split())
            others = [word for word in WORDS if word not in used]
            answer = rng.randrange(4)
            options = rng.sample(others, 3)
            options.insert(answer, rng.choice(text.split()))
            article = {
                "id": f"{group}{number}.txt",
                "article": text,
                "questions": [first[1], "what is there ?"],
                "options": [first[2], options],
                "answers": ["ABCD"[first[3]], "ABCD"[answer]],
            }
            path = folder / split / group / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(article))


def read_table(path):
    with path.open() as f:
        return list(csv.DictReader(f, delimiter="\t"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """RACE in small, whose dev and test are its train; vocabulary and configuration."""
    folder = tmp_path_factory.mktemp("race")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for split in ("train", "dev", "test"):
        write_race(folder / "RACE", split, 4, random.Random(0))
    return folder


def model_flags(folder):
    files = [f"--albert_config_file={folder}/config.json", f"--vocab_file={folder}/vocab.txt"]
    return [*files, *SETTINGS]


@pytest.fixture
def model(folder, run_script):
    """Output directory of one training run, and what it printed."""
    output_dir, log = folder / "model", folder / "log.txt"
    if not log.exists():
        done = run_script(
            run_race, "--do_train", "--do_eval", "--do_predict", f"--data_dir={folder}",
            f"--output_dir={output_dir}", *model_flags(folder), "--train_batch_size=16",
            "--learning_rate=3e-3", "--train_step=120", "--pad_to_max",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        log.write_text(done.stdout)
    return output_dir, log.read_text()


def test_a_few_questions_are_learned_by_heart(model):
    output_dir, printed = model
    results = json.loads((output_dir / "eval_results.json").read_text())
    assert results["accuracy"] == results["middle_accuracy"] == results["high_accuracy"] == 1.0
    assert results["loss"] < 0.1
    assert results["chance_accuracy"] == 0.25
    assert results["chance_loss"] == pytest.approx(math.log(4))
    assert "train: 16 questions (8 middle, 8 high) about 8 texts, 4 options each" in printed


def test_predictions_of_the_test_split_name_letter_and_probabilities(model, folder):
    output_dir, _ = model
    rows = read_table(output_dir / "predictions.tsv")
    right = {}
    for path in (folder / "RACE/test").glob("*/*.txt"):
        article = json.loads(path.read_text())
        right.update({f"{article['id']}-{i}": a for i, a in enumerate(article["answers"])})
    assert {row["id"]: row["prediction"] for row in rows} == right
    for row in rows:
        probabilities = {letter: float(row[letter]) for letter in "ABCD"}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert max(probabilities, key=probabilities.get) == row["prediction"]
    assert json.loads((output_dir / "predict_results.json").read_text())["accuracy"] == 1.0


def test_model_directory_alone_predicts_questions_with_any_number_of_options(
    model, folder, run_script, tmp_path
):
    output_dir, _ = model
    before = {row["id"]: row for row in read_table(output_dir / "predictions.tsv")}
    article = json.loads((folder / "RACE/test/middle/0.txt").read_text())
    question = {"id": "seen", "context": article["article"], "question": article["questions"][1]}
    rows = [
        {**question, "options": article["options"][1]},
        {**question, "id": "alike", "options": ["sun"] * 4},
    ]
    path = tmp_path / "new.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["--do_predict", f"--output_dir={output_dir}", f"--cached_dir={tmp_path}"]
    arguments.append("--precision=float32")  # As the predictions to compare with.
    done = run_script(run_race, *arguments, f"--predict_file={path}")
    assert done.returncode == 0, done.stderr
    first, second = read_table(output_dir / "predictions.tsv")
    for letter in "ABCD":
        expected = float(before["middle0.txt-1"][letter])
        assert float(first[letter]) == pytest.approx(expected, abs=1e-4)
        assert float(second[letter]) == pytest.approx(0.25, abs=1e-5)

    label = "ABCD".index(article["answers"][1])
    kept = [article["options"][1][label], article["options"][1][label - 1]]
    path.write_text(json.dumps({**question, "options": kept}))
    done = run_script(run_race, *arguments, f"--predict_file={path}", "--num_choices=2")
    assert done.returncode == 0, done.stderr
    (only,) = read_table(output_dir / "predictions.tsv")
    assert list(only) == ["id", "prediction", "A", "B"]
    assert only["prediction"] == "A"


def test_a_model_can_be_evaluated_again_and_on_one_group(model, folder, run_script):
    # The first evaluation padded all batches to 24, these pad them to 16.
    output_dir, _ = model
    results = json.loads((output_dir / "eval_results.json").read_text())
    arguments = ["--do_eval", f"--data_dir={folder}", f"--output_dir={output_dir}"]
    arguments.append("--precision=float32")
    assert run_script(run_race, *arguments).returncode == 0
    assert json.loads((output_dir / "eval_results.json").read_text()) == pytest.approx(
        results, abs=1e-5
    )
    assert run_script(run_race, *arguments, "--high_only").returncode == 0
    again = json.loads((output_dir / "eval_results.json").read_text())
    assert "middle_accuracy" not in again
    assert again["high_accuracy"] == again["accuracy"] == results["high_accuracy"]


@pytest.mark.slow
def test_json_lines_with_three_options_are_trained_on(folder, run_script, tmp_path):
    rng = random.Random(1)
    with (tmp_path / "swag.jsonl").open("w") as f:
        for _ in range(16):
            text, _, options, label = ask(rng, 3)
            f.write(json.dumps({"context": text, "options": options, "label": label}) + "\n")
    data = f"{tmp_path}/swag.jsonl"
    done = run_script(
        run_race, "--do_train", "--do_eval", f"--train_file={data}", f"--eval_file={data}",
        "--num_choices=3", f"--output_dir={tmp_path}/model", *model_flags(folder),
        "--train_step=4", "--train_batch_size=8", "--pad_to_max",
        "--gradient_accumulation_steps=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    task = json.loads((tmp_path / "model/task.json").read_text())
    expected = {"task": "multiple_choice", "num_choices": 3, "max_seq_length": 24}
    assert task == {**expected, "max_qa_length": 8}
    results = json.loads((tmp_path / "model/eval_results.json").read_text())
    assert results["chance_accuracy"] == pytest.approx(1 / 3)
    assert not {"middle_accuracy", "high_accuracy"} & set(results)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do"),
        (["--do_eval"], "--do_eval needs --data_dir (for RACE) or --eval_file"),
        (["--do_eval", "--data_dir={folder}", "--high_only", "--middle_only"], "not both"),
        (["--do_predict", "--predict_file={folder}/new.jsonl"], "holds no fine-tuned model"),
        (
            ["--do_train", "--train_file={folder}/new.jsonl", "--albert_config_file=albert_test"],
            "--spm_model_file or --vocab_file is needed",
        ),
    ],
)
def test_wrong_flags_give_one_sentence_and_leave_nothing(run_script, tmp_path, arguments, message):
    (tmp_path / "new.jsonl").touch()
    arguments = [argument.format(folder=tmp_path) for argument in arguments]
    done = run_script(run_race, f"--output_dir={tmp_path}/out", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_malformed_article_stops_the_run_before_it_begins(folder, run_script, tmp_path):
    write_race(tmp_path, "train", 2, random.Random(0))
    path = tmp_path / "train/high/1.txt"
    path.write_text(json.dumps({"id": "1", "article": "sun", "questions": ["?"], "answers": ["A"]}))
    done = run_script(
        run_race, "--do_train", f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out",
        *model_flags(folder),
    )  # fmt: skip
    assert done.returncode == 1
    assert "train/high/1.txt: there is no 'options'" in done.stderr
    assert not (tmp_path / "out").exists()
