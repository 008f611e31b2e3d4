# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The errors of a run whose output directory holds another run."""

from __future__ import annotations

import dataclasses
import json

import pytest
import tensorflow as tf
from absl import flags

from albert_tf import RunConfig, TrainSpec
from albert_tf.cli.flags import name_flags
from albert_tf.errors import AlbertError
from albert_tf.scripts import run_classifier, run_pretraining
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.run_identity import is_in, run_record
from albert_tf.weights.run_folder import RUN_CONFIG, RunFolder

CONFIG = RunConfig("runs/a", train_batch_size=8, seed=1)


@pytest.fixture
def folder(tmp_path):
    return RunFolder(str(tmp_path))


def claim(folder, record):
    folder.claim(record, lambda _: None)


@pytest.fixture
def of(tiny_config, record_paths):
    """Makes the record of a run, given changes to it."""

    def of(paths=record_paths, model=None, max_steps=100, fingerprint=None, data=(), **values):
        model_config = dataclasses.replace(tiny_config, **(model or {}))
        source = open_records(",".join(paths), model_config)
        spec = TrainSpec.of(source, max_steps)
        if fingerprint:
            spec = dataclasses.replace(spec, data_fingerprint=fingerprint, data_description=data)
        task = PretrainingTask(model_config, source)
        return run_record(dataclasses.replace(CONFIG, **values), task, spec)

    return of


@pytest.fixture
def refusal(of, folder):
    claim(folder, of())
    assert is_in(folder, of())

    def refusal(**changes):
        with pytest.raises(AlbertError, match="holds another run") as error:
            is_in(folder, of(**changes))
        return str(error.value)

    return refusal


@pytest.fixture
def flags_of():
    known = set(flags.FLAGS)
    yield lambda script: script.define_flags()
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)


@pytest.mark.parametrize("same", ["runs/base/", "./runs/base", "runs//base/."])
def test_another_spelling_of_a_path_is_the_same_run(of, folder, same):
    claim(folder, of(init_checkpoint="runs/base"))
    assert is_in(folder, of(init_checkpoint=same))
    assert of(init_checkpoint="gs://b//x/")["run"]["init_checkpoint"] == "gs://b//x/"


@pytest.mark.parametrize(
    ("script", "steps", "warmup"),
    [
        (run_pretraining, "--num_train_steps", "--num_warmup_steps"),
        (run_classifier, "--train_step", "--warmup_step"),
    ],
)
def test_scripts_name_settings_by_their_flags(refusal, flags_of, script, steps, warmup):
    flags_of(script)
    text = name_flags(refusal(max_steps=200, num_warmup_steps=7, seed=2, learning_rate=0.5))
    assert f"{steps}=100 there, 200 here" in text
    assert f"{warmup}=3125 there, 7 here" in text
    assert "--random_seed=1 there, 2 here" in text
    assert "--learning_rate=0.00176 there, 0.5 here" in text


def test_only_the_differences_of_model_configurations_are_shown(refusal):
    text = refusal(model={"hidden_size": 32, "num_hidden_layers": 3})
    assert "(`config.hidden_size`=16 there, 32 here; `config.num_hidden_layers`=1 there," in text


def test_more_than_four_differences_are_counted(refusal):
    optimizer = {"optimizer": "adamw", "clip_norm": 2.0, "num_warmup_steps": 7}
    text = refusal(max_steps=1, seed=2, train_batch_size=4, **optimizer)
    assert text.count(" there, ") == 4 and "; and 2 more)" in text


def test_other_data_is_reported_by_its_description_without_digests(refusal, of):
    digest, data = "0123456789abcdef" * 4, {**of()["data"]}
    assert "(another `data`);" in refusal(fingerprint=f"{digest}-16-32", data=data)
    text = refusal(fingerprint=digest, data={**data, "examples": 9})
    assert "(another `data`; `data.examples`=" in text and " there, 9 here)" in text


def test_values_that_look_the_same_once_shortened_are_not_shown(of, folder):
    begin = "gs://bucket/" + "x" * 80
    claim(folder, of(init_checkpoint=f"{begin}/a"))
    with pytest.raises(AlbertError, match=r"another run \(another `init_checkpoint`\); give"):
        is_in(folder, of(init_checkpoint=f"{begin}/b"))


def test_a_run_can_be_resumed_with_another_tensorflow(of, folder, tmp_path):
    claim(folder, of())
    path = tmp_path / RUN_CONFIG
    written = json.loads(path.read_text())
    assert written["tensorflow"] == tf.__version__
    path.write_text(json.dumps({**written, "tensorflow": "2.9.3"}))
    assert is_in(folder, of())
