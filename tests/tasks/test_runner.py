# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from albert_tf.data.context import InputContext
from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError, DivergedError
from albert_tf.tasks import runner
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.fine_tune_config import FineTuneConfig
from albert_tf.tasks.runner import Examples, fine_tune, run
from albert_tf.tasks.tables import TextExample
from albert_tf.training.estimator import Estimator
from albert_tf.training.loop import Predictor, TrainLoop
from albert_tf.training.specs import RunConfig, TrainSpec
from albert_tf.weights.load import load_weights
from albert_tf.weights.run_folder import BestRecord, model_folder
from tests.tasks.conftest import CONFIG
from tests.training.damage import files_below

TRAINING = {
    "optimizer": "adamw",
    "train_batch_size": 8,
    "learning_rate": 1e-3,
    "num_warmup_steps": 2,
    "save_checkpoints_steps": 3,
}


def some_examples(count):
    rng = np.random.default_rng(0)
    return [
        TextExample(str(i), " ".join(rng.choice(list("abc"), size)), None, "xy"[i % 2], f"f:{i}")
        for i, size in enumerate(rng.integers(1, 62, count))
    ]


def train(task, source, folder, steps, **changes):
    """Trains and returns the weights."""
    estimator = Estimator(task, RunConfig(str(folder), **TRAINING, **changes))
    estimator.train_and_evaluate(TrainSpec(source.train_input_fn, steps, source.fingerprint))
    return {k: v.numpy() for k, v in estimator.model.named_weights().items()}


def recorded(folder, output_dir):
    """The settings of the run in a folder, for another output directory."""
    values = json.loads((folder / "run_config.json").read_text())["run"]
    names = {field.name for field in dataclasses.fields(RunConfig)} & {*values}
    return {**{name: values[name] for name in names}, "output_dir": str(output_dir)}


class Seeds(NamedTuple):
    """A run with two seeds.

    Attributes:
      folder: of the run.
      source: the training data of the first seed.
      weights: of the first seed.
      printed: by the run.
      results: of the best seed.
      built: the names of the methods that built models and graphs, once for each call.
    """

    folder: Path
    source: Sequences
    weights: dict[str, np.ndarray]
    printed: str
    results: dict[str, float]
    built: list[str]


@pytest.fixture(scope="module")
def seeds(tokenizer, tmp_path_factory):
    """11 steps each with the seeds 3 and 4, without dropout.

    Has several lengths, loops of one and of more steps, evaluations during and after training, and
    predictions.
    """
    folder, texts = tmp_path_factory.mktemp("seeds"), some_examples(70)
    task = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(("x", "y"), 64), 0.0)
    config = FineTuneConfig(
        output_dir=str(folder / "run"),
        train_batch_size=8,
        eval_batch_size=8,
        seed=3,
        num_seeds=2,
        learning_rate=1e-3,
        train_step=11,
        warmup_step=2,
        eval_every_steps=4,
        save_checkpoints_steps=3,
        precision="float32",
    )
    built = []

    def counted(patch, owner, name):
        function = getattr(owner, name)

        def wrapper(*args):
            built.append(name)
            return function(*args)

        patch.setattr(owner, name, wrapper)

    examples = Examples(texts, {"eval": texts[2:]}, {"new": texts})
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        pytest.MonkeyPatch.context() as patch,
    ):
        counted(patch, TextClassificationTask, "build_model")
        counted(patch, TrainLoop, "_steps")
        counted(patch, Predictor, "_distributed_step")
        results = run(task, examples, config)
    source = task.open_examples(texts, "train", training=True).source.reseeded(3)
    model = task.build_model().named_weights()
    load_weights(str(folder / "run/seed-3/checkpoints/ckpt-11"), model)
    weights = {name: variable.numpy() for name, variable in model.items()}
    return Seeds(folder / "run", source, weights, printed.getvalue(), results, built)


def test_a_run_without_its_last_checkpoints_repeats_the_same_steps(seeds, task, tmp_path):
    shutil.copytree(seeds.folder / "seed-3", tmp_path / "run")
    checkpoints = tmp_path / "run/checkpoints"
    for path in [p for step in (6, 9, 11) for p in checkpoints.glob(f"ckpt-{step}.*")]:
        path.unlink()
    (checkpoints / "checkpoint").write_text('model_checkpoint_path: "ckpt-3"\n')
    assert (checkpoints / "ckpt-3.index").exists()
    shutil.rmtree(tmp_path / "run/best")  # Without evaluations, best weights would be stale.
    resumed = train(task, seeds.source, tmp_path / "run", 11, seed=3)
    for name, value in seeds.weights.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


@pytest.mark.parametrize("earlier", [0.9, 0.1])
def test_best_weights_of_earlier_evaluations_compete_with_those_of_the_end(
    seeds, task, tmp_path, earlier
):
    shutil.copytree(seeds.folder / "seed-3", tmp_path / "run")
    for path in [p for n in (6, 9, 11) for p in tmp_path.glob(f"run/checkpoints/ckpt-{n}.*")]:
        path.unlink()
    (tmp_path / "run/checkpoints/checkpoint").write_text('model_checkpoint_path: "ckpt-3"\n')
    same = recorded(tmp_path / "run", tmp_path / "run")
    config = FineTuneConfig(**same, train_step=11, warmup_step=2, eval_every_steps=100)
    texts = some_examples(70)
    folder = str(tmp_path / "run/best")
    record = BestRecord.load(folder)
    dataclasses.replace(record, value=earlier).save(folder)
    run(task, Examples(texts, {"eval": texts[2:]}), config)  # It has no evaluations before the end.
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [x["step"] for x in map(json.loads, lines) if x["split"] == "eval"] == [11]
    assert BestRecord.load(folder).step == (record.step if earlier > 0.5 else 11)


@pytest.mark.parametrize(("every_steps", "evaluations"), [(None, 4), (4, 0), (2, 2)])
def test_the_end_is_not_evaluated_twice_without_earlier_evaluations(
    task, tmp_path, every_steps, evaluations
):
    texts = some_examples(16)
    config = FineTuneConfig(
        str(tmp_path / "run"), **TRAINING, train_step=4, warmup_step=0, eval_every_steps=every_steps
    )
    results = run(task, Examples(texts, {"eval": texts[2:]}), config)
    assert 0 <= results["accuracy"] <= 1
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["split"] for line in lines].count("eval") == evaluations


def test_evaluations_no_better_than_a_constant_answer_say_so(task, tmp_path, capsys):
    texts = some_examples(16)
    held_out = [example for example in texts if example.label == texts[0].label]
    settings = {**TRAINING, "train_step": 4, "eval_every_steps": 2}
    run(
        task, Examples(texts, {"eval": held_out}), FineTuneConfig(str(tmp_path / "run"), **settings)
    )
    printed, said = capsys.readouterr(), "No better than the same answer every time: accuracy "
    assert printed.err.count(said) == 2  # During training.
    assert f"eval: {said}" in printed.out


def test_each_seed_has_a_folder_and_the_best_is_recorded(seeds):
    record = json.loads((seeds.folder / "seeds.json").read_text())
    assert set(record["values"]) == {"seed-3", "seed-4"}
    assert record["values"][record["best"]] == max(record["values"].values())
    assert model_folder(str(seeds.folder)) == str(seeds.folder / record["best"])
    assert f"Seed 3: accuracy {record['values']['seed-3']:.4f}" in seeds.printed
    assert "accuracy of 2 seeds: median " in seeds.printed
    assert "majority_accuracy        0.5000" in seeds.printed
    assert seeds.results["accuracy"] == record["values"][record["best"]]


@pytest.mark.parametrize("held_out", ["same", "other"])
def test_a_resumed_run_evaluates_finished_seeds_again_on_other_data_only(
    seeds, task, tmp_path, monkeypatch, held_out
):
    shutil.copytree(seeds.folder, tmp_path / "run")
    (tmp_path / "run/seeds.json").unlink()  # As after a kill while the last seed was trained.
    same = recorded(tmp_path / "run/seed-3", tmp_path / "run")
    config = FineTuneConfig(**same, train_step=11, warmup_step=2, eval_every_steps=4, num_seeds=2)
    texts = some_examples(70)
    data = task.open_examples(texts, "train", training=True)
    other = texts[2:] if held_out == "same" else texts[:30]
    eval_spec = task.open_examples(other, "eval").eval_spec(8, 4)
    evaluated = []
    monkeypatch.setattr(
        Estimator, "evaluate", lambda self, _: evaluated.append(self.config.seed) or {"accuracy": 0}
    )
    fine_tune(task, config.for_data(70, 70), data, [eval_spec])
    assert evaluated == ([] if held_out == "same" else [3, 4])
    if held_out == "same":
        assert (tmp_path / "run/seeds.json").read_text() == (
            seeds.folder / "seeds.json"
        ).read_text()


def spoil_seeds(monkeypatch, *seeds):
    """Makes the labels of the runs with these seeds NaN."""
    original = Sequences.train_input_fn.fget

    def train_input_fn(self):
        factor = np.nan if self.seed in seeds else 1.0
        return lambda context: original(self)(context).map(
            lambda batch: {**batch, "label_ids": batch["label_ids"] * factor}
        )

    monkeypatch.setattr(Sequences, "train_input_fn", property(train_input_fn))


@pytest.fixture
def fine_tune_two_seeds(tokenizer, tmp_path):
    """Fine-tunes a regression with the seeds 3 and 4, in the folder `run`."""
    task = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec((), 64))
    examples = [dataclasses.replace(x, label=f"{len(x.text)}") for x in some_examples(16)]
    data = task.open_examples(examples, "train", training=True)
    settings = {"train_batch_size": 8, "seed": 3, "train_step": 2, "warmup_step": 0}
    config = FineTuneConfig(str(tmp_path / "run"), **settings, num_seeds=2)
    return lambda: fine_tune(task, config, data, [data.eval_spec(batch_size=64)])


@pytest.mark.parametrize(
    ("values", "larger_is_better", "best"),
    [
        (((0.1, 1.0), (0.2, 2.0)), True, 4),
        (((0.2, 2.0), (0.1, 1.0)), True, 3),
        (((0.1, 2.0), (0.2, 1.0)), False, 3),
        (((np.nan, 1.0), (0.1, 2.0)), True, 4),
        (((0.1, 2.0), (0.1, 1.0)), True, 4),  # The lower loss decides.
        (((0.1, 1.0), (0.1, 2.0)), False, 3),
    ],
)
def test_the_model_of_the_best_seed_is_returned(
    fine_tune_two_seeds, tmp_path, monkeypatch, values, larger_is_better, best
):
    trained, left = [], iter(values)

    def train_seed(estimator, *_):
        trained.append(estimator.config)
        return next(left)

    monkeypatch.setattr(runner, "_train_seed", train_seed)
    monkeypatch.setattr(TextClassificationTask, "best_metric_larger_is_better", larger_is_better)
    chosen = fine_tune_two_seeds()
    folders = {3: str(tmp_path / "run/seed-3"), 4: str(tmp_path / "run/seed-4")}
    assert {config.seed: config.output_dir for config in trained} == folders
    assert chosen.config.output_dir == folders[best]


def test_a_seed_that_diverges_does_not_hide_the_other(
    fine_tune_two_seeds, tmp_path, monkeypatch, capsys
):
    spoil_seeds(monkeypatch, 3)
    fine_tune_two_seeds()
    record = json.loads((tmp_path / "run" / "seeds.json").read_text())
    assert record["values"]["seed-3"] is None and record["values"]["seed-4"] is not None
    assert record["best"] == "seed-4"
    assert "Training has diverged: 2 steps in a row" in capsys.readouterr().out


def test_seeds_that_all_diverge_are_an_error(fine_tune_two_seeds, tmp_path, monkeypatch):
    spoil_seeds(monkeypatch, 3, 4)
    with pytest.raises(DivergedError, match="The training of all 2 seeds has diverged"):
        fine_tune_two_seeds()
    assert not (tmp_path / "run/seeds.json").exists()


def test_seeds_without_evaluation_are_refused(task, tmp_path):
    config = FineTuneConfig(str(tmp_path / "run"), train_step=4, num_seeds=2)
    with pytest.raises(AlbertError, match="`num_seeds` needs `do_eval`"):
        run(task, Examples(some_examples(8)), config)


def test_runs_with_other_seeds_do_not_share_a_folder(seeds, task, tmp_path):
    examples = Examples(some_examples(8))

    def refused(folder, message, seed=3, number=1):
        config = FineTuneConfig(str(folder), seed=seed, train_step=4, num_seeds=number)
        before = files_below(folder)
        with pytest.raises(AlbertError, match=message):
            run(task, examples, config)
        assert files_below(folder) == before

    several = r"run holds runs with several seeds \(seeds\.json\); give"
    refused(seeds.folder, several)
    refused(seeds.folder, several, seed=4, number=3)
    one = "holds a run with one seed; give another output directory"
    for name in ("run_config.json", "task.json"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("{}")
        refused(tmp_path / name, one, number=2)


def test_a_run_builds_one_model_and_traces_each_graph_once(seeds):
    # Two runs, and the best one opened again to be evaluated and to predict.
    expected = ["_distributed_step"] * 3 + ["_steps"] * 2 + ["build_model"] * 3
    assert sorted(seeds.built) == expected


def test_evaluation_by_length_equals_evaluation_padded_to_the_maximum(task, tmp_path):
    examples = some_examples(70)
    estimator = Estimator(task, RunConfig(str(tmp_path / "run"), eval_batch_size=16))
    for weight in estimator.model.trainable_variables:
        weight.assign(weight * 12)
    outputs = {}
    for pad_to_max in (False, True):
        data = task.open_examples(examples, "eval", pad_to_max=pad_to_max)
        batches = data.source.eval_input_fn(InputContext(16))
        lengths = {batch["input_mask"].shape[1] for batch in batches}
        assert (lengths == {64}) == pad_to_max
        outputs[pad_to_max] = estimator.outputs(data.eval_spec(16))
    data = task.encode(examples, labelled=False)
    predict = functools.partial(task.predict, estimator.model)
    expected = data.outputs(predict)["probabilities"]  # In their order.
    assert np.ptp(outputs[True]["probabilities"][:, 0]) > 0.01
    for found in outputs.values():
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
