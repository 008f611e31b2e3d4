# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_classifier.py on files in GLUE's formats, with one decisive word per text."""

import csv
import json
import random
import shutil

import numpy as np
import pytest

from albert_tf.scripts import run_classifier
from albert_tf.tasks.glue.submission import TEST_SETS
from tests.support.builders import tiny_config, write_tokenizer
from tests.support.script_flags import run_printed

FILLERS = ["sun", "rain", "river", "stone", "bread"]
DECIDERS = ["never", "always", "perhaps"]
SIZES = {"embedding_size": 16, "hidden_size": 32, "intermediate_size": 64}
#: For each file the label column, the labels that never, always and perhaps stand for, and rows.
RTE = ["not_entailment", "entailment"]
NLI = ["contradiction", "entailment", "neutral"]
FILES = {
    "RTE/train": ("label", RTE, 200),
    "RTE/dev": ("label", RTE, 60),
    "RTE/test": (None, RTE, 40),
    "STS-B/train": ("score", ["1.0", "4.000"], 200),
    "STS-B/dev": ("score", ["1.0", "4.000"], 60),
    "STS-B/test": (None, ["1.0", "4.000"], 40),
    "MNLI/train": ("gold_label", NLI, 300),
    "MNLI/dev_matched": ("gold_label", NLI, 60),
    "MNLI/dev_mismatched": ("gold_label", NLI, 45),
    "MNLI/test_matched": (None, NLI, 40),
    "MNLI/test_mismatched": (None, NLI, 50),
    "diagnostic/diagnostic": (None, NLI, 30),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Vocabulary, configuration and the files of RTE, STS-B, MNLI and AX, sorted by nothing."""
    folder = tmp_path_factory.mktemp("glue")
    rng = random.Random(0)
    tokenizer = write_tokenizer(folder, [*DECIDERS, *FILLERS])
    sizes = {"max_position_embeddings": 16, "initializer_range": 0.2, **SIZES}
    tiny_config(tokenizer.vocab_size, **sizes).to_json(str(folder / "config.json"))
    for file, (label_column, labels, rows) in FILES.items():
        path = folder / "data" / f"{file}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        names = ["index", "sentence1", "sentence2"] + [label_column] * bool(label_column)
        lines = ["\t".join(names)]
        for i in range(rows):
            choice = rng.randrange(len(labels))
            first = [*rng.choices(FILLERS, k=2), *[DECIDERS[choice]] * 2]
            rng.shuffle(first)
            cells = [str(i), " ".join(first), " ".join(rng.choices(FILLERS, k=2))]
            lines.append("\t".join(cells + [labels[choice]] * bool(label_column)))
        path.write_text("\n".join(lines) + "\n")
    return folder


def training_flags(folder):
    return {
        "data_dir": folder / "data",
        "do_train": True,
        "do_eval": True,
        "albert_config_file": folder / "config.json",
        "vocab_file": folder / "vocab.txt",
        "train_batch_size": 16,
        "learning_rate": 1e-3,
        "train_step": 80,
        "eval_every_steps": 40,
        "dropout": 0,
    }


@pytest.fixture
def run(run_script):
    return lambda **given: run_script(run_classifier, *(f"--{k}={v}" for k, v in given.items()))


def table(path):
    with path.open() as f:
        return list(csv.DictReader(f, delimiter="\t"))


def expected_answers(folder, file):
    """Returns the labels that the decisive words of an unlabelled file stand for."""
    _, labels, _ = FILES[file]
    rows = table(folder / "data" / f"{file}.tsv")
    words = [next(w for w in row["sentence1"].split() if w in DECIDERS) for row in rows]
    return [labels[DECIDERS.index(word)] for word in words]


@pytest.fixture(scope="module")
def trained(folder):
    """The output of a run that trains, evaluates and predicts all tasks, in the folder `runs`."""
    arguments = dict(training_flags(folder), task_name="all", do_predict=True)
    return run_printed(run_classifier, **arguments, output_dir=folder / "runs")


@pytest.fixture
def runs(trained, folder, tmp_path):
    """A copy of the runs that a test may change."""
    return shutil.copytree(folder / "runs", tmp_path / "runs")


def score_table(printed):
    return printed[printed.index("GLUE, dev") :].splitlines()


def test_all_tasks_of_a_folder_train_evaluate_and_predict_in_one_command(trained, folder):
    assert f'\n  albert classify {folder}/runs/rte "A text." "Another one."\n' in trained
    lines = score_table(trained)
    scores = {line.split()[0]: float(line.split()[1]) for line in lines[1:]}
    assert list(scores) == ["STS-B", "MNLI", "RTE", "average"]
    assert all(score > 90 for score in scores.values())
    assert max(map(len, lines)) <= 80

    for run_name, sent, file in (
        ("rte", "RTE.tsv", "RTE/test"),
        ("mnli", "MNLI-m.tsv", "MNLI/test_matched"),
        ("mnli", "MNLI-mm.tsv", "MNLI/test_mismatched"),
        ("mnli", "AX.tsv", "diagnostic/diagnostic"),
    ):
        answers = table(folder / "runs" / run_name / "predictions" / sent)
        assert [row["id"] for row in answers] == [str(i) for i in range(FILES[file][2])]
        right = [a["prediction"] == b for a, b in zip(answers, expected_answers(folder, file))]
        assert np.mean(right) > 0.9
        task, _ = TEST_SETS[sent]
        for row in table(folder / "runs" / run_name / "predictions" / sent):
            assert sum(float(row[label]) for label in task.labels) == pytest.approx(1, abs=1e-4)
    values = [float(r["prediction"]) for r in table(folder / "runs/sts-b/predictions/STS-B.tsv")]
    assert np.corrcoef(values, np.float64(expected_answers(folder, "STS-B/test")))[0, 1] > 0.9

    results = json.loads((folder / "runs/mnli/eval_results.json").read_text())
    assert results["accuracy"] > 0.9
    assert results["dev_mismatched_accuracy"] > 0.9


def test_all_tasks_again_train_nothing_and_give_the_same_table(trained, runs, folder, run):
    again = run(**training_flags(folder), task_name="all", output_dir=runs)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("already trained") == 3
    assert score_table(again.stdout) == score_table(trained)


def test_a_trained_model_predicts_its_own_task_only(runs, folder, run):
    done = run(task_name="RTE", do_predict=True, data_dir=folder / "data", output_dir=runs / "mnli")
    assert done.returncode == 1
    assert "was trained for 'mnli', not 'rte'" in done.stderr
    done = run(do_predict=True, predict_file=folder / "data/RTE/test.tsv", output_dir=runs / "rte")
    assert done.returncode == 0, done.stderr
    ours = [row["prediction"] for row in table(runs / "rte/predictions.tsv")]
    assert ours == [row["prediction"] for row in table(runs / "rte/predictions/RTE.tsv")]


BAD_INPUT = {
    "no data_dir": ({"data_dir": ""}, "--data_dir is needed"),
    "no output_dir for all": ({"output_dir": "", "task_name": "all"}, "--output_dir is needed"),
    "empty folder": ({"data_dir": "{folder}/runs", "task_name": "all"}, "holds no GLUE task"),
    "no folder": ({"data_dir": "nope", "task_name": "all"}, "nope does not exist; the folders in"),
    "no such task there": ({"task_name": "cola"}, "CoLA/train.tsv does not exist"),
    "no model": ({"do_train": False}, "does not exist; give the output directory"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_an_error_and_nothing_is_written(case, folder, run, tmp_path):
    changes, message = BAD_INPUT[case]
    changes = {k: v.format(folder=folder) if isinstance(v, str) else v for k, v in changes.items()}
    arguments = {"task_name": "rte", **training_flags(folder), **changes}
    done = run(**{"output_dir": tmp_path / "out", **arguments})
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_errors_in_the_files_of_any_task_are_found_before_training(folder, run, tmp_path):
    for file in ("RTE/train", "RTE/dev", "STS-B/train", "STS-B/dev"):
        path = tmp_path / f"{file}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text((folder / "data" / f"{file}.tsv").read_text())
    with (tmp_path / "RTE/dev.tsv").open("a") as f:
        f.write("60\ta\tb\tmaybe\n")
    arguments = dict(training_flags(folder), data_dir=tmp_path, task_name="all")
    done = run(**arguments, output_dir=tmp_path / "out")
    assert done.returncode == 1
    assert "RTE/dev.tsv:62: the label 'maybe' does not occur" in done.stderr
    assert not (tmp_path / "out").exists()
