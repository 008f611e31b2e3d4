# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_classifier.py from files to files, with the real Estimator and a tiny model."""

import csv
import functools
import json
import os
import pathlib
import random
import shutil
import signal

import pytest

from albert_tf.errors import AlbertError
from albert_tf.scripts import run_classifier
from albert_tf.tasks.classification.classifier import TextClassifier
from albert_tf.weights.load import open_source
from tests.support.builders import SPECIAL_PIECES, tiny_config, write_tokenizer
from tests.support.script_flags import run_printed

ROOT = pathlib.Path(__file__).parents[1]
WORDS = ["sun", "rain", "river", "stone", "bread", "window", "cat", "road"]
SIZES = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}


def text_with(word, rng):
    words = rng.choices(WORDS, k=rng.randint(2, 5))
    words.insert(rng.randrange(len(words) + 1), word)
    return " ".join(words)


def write_tsv(path, rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")


run = functools.partial(run_printed, run_classifier)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of a task with one decisive word per text; the training file is sorted by label."""
    folder = tmp_path_factory.mktemp("classifier")
    rng = random.Random(0)
    tokenizer = write_tokenizer(folder, ["fine", "awful", *WORDS])
    config = tiny_config(tokenizer.vocab_size, max_position_embeddings=16, **SIZES)
    config.to_json(str(folder / "config.json"))
    for name, size in (("train", 150), ("dev", 50)):
        labels = ["negative"] * size + ["positive"] * size
        rows = [(text_with({"negative": "awful"}.get(x, "fine"), rng), x) for x in labels]
        write_tsv(folder / f"{name}.tsv", [("sentence", "label"), *rows])
    unlabelled = [(f"q{i}", text) for i, (text, _) in enumerate(rows)]
    write_tsv(folder / "new.tsv", [("number", "sentence"), *unlabelled])
    return folder


def training_flags(folder):
    return {
        "do_train": True,
        "train_file": folder / "train.tsv",
        "text_column": "sentence",
        "albert_config_file": folder / "config.json",
        "vocab_file": folder / "vocab.txt",
        "max_seq_length": 10,
        "train_batch_size": 16,
        "learning_rate": 2e-3,
        "train_step": 120,
    }


@pytest.fixture(scope="module")
def model(folder):
    """Output directory of a training run, and what it printed."""
    evaluation = {"do_eval": True, "eval_file": folder / "dev.tsv", "eval_every_steps": 60}
    printed = run(**training_flags(folder), **evaluation, output_dir=folder / "model")
    return folder / "model", printed


@pytest.fixture(scope="module")
def second(model, folder):
    """Arguments of a run that starts from the model and trains only its head; what it printed."""
    arguments = dict(
        training_flags(folder),
        num_train_epochs=0.1,
        init_checkpoint=model[0],
        freeze="encoder",
        output_dir=folder / "second",
    )
    for name in ("train_step", "albert_config_file", "vocab_file"):
        del arguments[name]
    evaluation = {"do_eval": True, "eval_file": folder / "dev.tsv", "eval_every_steps": 2}
    return arguments, run(**arguments, **evaluation)


def test_separable_task_is_learned_and_results_are_written(model):
    output_dir, printed = model
    results = json.loads((output_dir / "eval_results.json").read_text())
    assert results["accuracy"] > 0.9
    assert results["matthews_corr"] > 0.8
    assert results["majority_accuracy"] == 0.5
    assert "train: 300 examples" in printed
    assert "labels negative 50.0%, positive 50.0%" in printed
    assert json.loads((output_dir / "task.json").read_text())["labels"] == ["negative", "positive"]


def weights_of(output_dir):
    source = open_source(str(output_dir))
    return {name: source.read(name) for name in source.shapes}


def test_freezing_the_encoder_trains_only_the_head(model, second):
    before, after = weights_of(model[0]), weights_of(second[0]["output_dir"])
    assert set(after) == set(before)
    changed = {name for name, value in after.items() if (value != before[name]).any()}
    assert changed == {"output_weights", "output_bias"}


def test_training_in_python_gives_the_same_bits(second, folder, tmp_path):
    arguments = {
        k: v for k, v in second[0].items() if k not in ("do_train", "train_file", "text_column")
    }
    with (folder / "train.tsv").open() as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    settings = {**arguments, "eval_every_steps": 2, "output_dir": tmp_path / "python"}
    start = settings.pop("init_checkpoint")
    columns = {"text": "sentence", "label": "label"}
    classifier = TextClassifier.train(start, rows, folder / "dev.tsv", **columns, **settings)
    assert [entry["step"] for entry in classifier.history] == [1, 2]
    assert {"split", "loss", "learning_rate"} <= classifier.history[0].keys()
    script, python = (weights_of(path) for path in (arguments["output_dir"], tmp_path / "python"))
    assert script.keys() == python.keys()
    assert [name for name, value in python.items() if (value != script[name]).any()] == []
    for name in ("task.json", "eval_results.json"):
        written = (tmp_path / "python" / name).read_text()
        assert written == (arguments["output_dir"] / name).read_text(), name
    found = classifier.evaluate(folder / "dev.tsv")
    # The training may compute in bfloat16.
    assert classifier.metrics == json.loads(written) == pytest.approx(found, abs=1e-3)
    assert {c.label for c in classifier.predict(["rain fine", "awful sun"])} == {
        "negative",
        "positive",
    }


@pytest.fixture
def copied_model(model, tmp_path):
    """A copy of the model that a test may change."""
    return shutil.copytree(model[0], tmp_path / "model")


def test_the_output_directory_suffices_for_predicting(copied_model, folder, tmp_path):
    given = {"do_predict": True, "predict_file": folder / "new.tsv", "id_column": "number"}
    run(**given, output_dir=copied_model)
    with (copied_model / "predictions.tsv").open() as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(100)]
    right = [row["prediction"] for row in rows[:50]].count("negative")
    right += [row["prediction"] for row in rows[50:]].count("positive")
    results = json.loads((copied_model / "eval_results.json").read_text())
    assert right / 100 == pytest.approx(results["accuracy"])
    for row in rows:
        probabilities = {k: float(row[k]) for k in ("negative", "positive")}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert row["prediction"] == max(probabilities, key=probabilities.get)
    (folder / "texts.tsv").write_text("sentence\nfine sun cat road\n\nsun\n")
    given = {"do_predict": True, "predict_file": folder / "texts.tsv"}
    printed = run(**given, output_dir=copied_model, max_seq_length=5)
    assert "1 sequence is cut to fit into 5 tokens" in printed
    with (copied_model / "predictions.tsv").open() as f:
        rows = [(row["id"], row["text"]) for row in csv.DictReader(f, delimiter="\t")]
    assert rows == [("0", "fine sun cat road"), ("1", ""), ("2", "sun")]


def test_a_locked_output_directory_allows_evaluation_and_prediction_but_no_training(
    copied_model, folder, hold
):
    given = {"do_eval": True, "eval_file": folder / "dev.tsv", "output_dir": copied_model}
    with hold(copied_model):
        path = copied_model / "eval_results.json"
        before = json.loads(path.read_text())
        path.unlink()
        run(**given, do_predict=True, predict_file=folder / "new.tsv")
        with pytest.raises(AlbertError, match=f"^{copied_model} is in use by process "):
            run(**training_flags(folder), **given)
    assert json.loads(path.read_text()) == pytest.approx(before)
    assert before["accuracy"] > 0.9


def test_predictions_do_not_overwrite_their_input(folder, tmp_path):
    (tmp_path / "predictions.tsv").write_text("sentence\nfine sun\n")
    (tmp_path / "link.tsv").symlink_to(tmp_path / "predictions.tsv")
    arguments = {**training_flags(folder), "do_predict": True, "output_dir": tmp_path}
    with pytest.raises(AlbertError, match=r"predictions\.tsv is also an input \(as .*link\.tsv\)"):
        run(**arguments, predict_file=tmp_path / "link.tsv")
    assert (tmp_path / "predictions.tsv").read_text() == "sentence\nfine sun\n"
    assert sorted(os.listdir(tmp_path)) == ["link.tsv", "predictions.tsv"]


def test_vocabulary_and_configuration_come_from_the_checkpoint_and_a_finished_run_is_kept(second):
    arguments, printed = second
    assert "variables matched" in printed
    assert "already trained" in run(**arguments)
    with pytest.raises(AlbertError, match="holds another run"):
        run(**{**arguments, "learning_rate": 1e-4})


BAD_INPUT = {
    "random weights": (
        {"freeze": "encoder"},
        "--freeze=encoder keeps weights as they are in --init_checkpoint; without one they would",
    ),
    "no column": ({"text_column": "text"}, "there are sentence, label; name one by --text_column."),
    "no file": ({"do_eval": True}, "--do_eval needs --eval_file"),
    "unknown label": (
        {"do_eval": True, "eval_file": "{folder}/odd.tsv"},
        "odd.tsv:2: the label 'neutral' does not occur in the training data",
    ),
    "no vocabulary": ({"vocab_file": ""}, "--spm_model_file or --vocab_file is needed"),
    "wrong vocabulary": ({"vocab_file": "{folder}/short.txt"}, "short.txt has 8 pieces, but the"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_an_error_and_nothing_is_written(case, folder, tmp_path):
    changes, message = BAD_INPUT[case]
    write_tsv(folder / "odd.tsv", [("sentence", "label"), ("fine sun", "neutral")])
    (folder / "short.txt").write_text("\n".join([*SPECIAL_PIECES, *WORDS[:3]]) + "\n")
    changes = {k: v.format(folder=folder) if isinstance(v, str) else v for k, v in changes.items()}
    arguments = {**training_flags(folder), **changes} if changes else {}
    with pytest.raises(AlbertError) as error:
        run(**arguments, output_dir=tmp_path / "out")
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_signal_stops_all_seeds_and_leaves_a_checkpoint(folder, tmp_path, script_server):
    values = {**training_flags(folder), "do_eval": True, "eval_file": folder / "dev.tsv"}
    values |= {"output_dir": tmp_path / "run", "num_seeds": 2, "train_step": 100_000}
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    out.touch()
    err.touch()
    given = [f"--{k}={v}" for k, v in values.items()]
    with script_server.running("run_classifier", given, out, err) as process:
        while " 1/100000" not in err.read_text():
            assert script_server.status(0.02) is None, err.read_text()
        os.kill(process, signal.SIGINT)
        assert script_server.status(300) == 130
    printed = out.read_text()
    assert "Stopped at step" in printed and "(2 of 2)" not in printed
    assert "Traceback" not in err.read_text()
    assert len(list((tmp_path / "run").glob("seed-*/checkpoints/*.index"))) == 1
    assert not (tmp_path / "run" / "seeds.json").exists()
