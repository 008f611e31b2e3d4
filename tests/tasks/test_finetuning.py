# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import numpy as np
import pytest

from albert_tf.config import AlbertConfig
from albert_tf.data.text_tables import TextExample
from albert_tf.errors import AlbertError
from albert_tf.tasks.finetuning import load_model_files, read_task_file
from albert_tf.tasks.text_classification import ClassificationSpec, TextClassificationTask
from albert_tf.tokenization import Tokenizer
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import InputContext, RunConfig

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
CONFIG = AlbertConfig(
    vocab_size=len(PIECES),
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=64,
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES))
    return Tokenizer.from_file(str(path))


@pytest.fixture
def task(tokenizer):
    return TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(("x", "y"), 64))


def test_model_files_are_found_from_any_name_of_a_checkpoint(task, tokenizer, tmp_path):
    task.save_files(str(tmp_path))
    for name in ("", "checkpoints", "checkpoints/ckpt-10", "best/ckpt-10"):
        config, found = load_model_files(None, None, None, str(tmp_path / name))
        assert config == CONFIG
        assert found.spec == tokenizer.spec


def test_preset_takes_the_size_of_the_vocabulary(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path))
    config, _ = load_model_files("albert_test", str(tmp_path / "vocab.txt"), None, None)
    assert config.vocab_size == len(PIECES)


def test_missing_model_file_names_the_flag(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path))
    with pytest.raises(AlbertError, match="--albert_config_file is needed: there is no albert_con"):
        load_model_files(None, None, None, str(tmp_path))
    with pytest.raises(AlbertError, match="--vocab_file is needed: no --init_checkpoint tells it"):
        load_model_files("albert_test", None, None, None)


def test_a_folder_of_another_task_or_of_none_is_refused(task, tmp_path):
    with pytest.raises(AlbertError, match="holds no fine-tuned model"):
        read_task_file(str(tmp_path), "squad")
    task.save_files(str(tmp_path))
    with pytest.raises(AlbertError, match="for the task 'text_classification', not 'squad'"):
        read_task_file(str(tmp_path), "squad")
    (tmp_path / "task.json").write_text(json.dumps(["x"]))
    with pytest.raises(AlbertError, match="for the task None"):
        read_task_file(str(tmp_path), "squad")


def test_evaluation_by_length_equals_evaluation_padded_to_the_maximum(task, tmp_path):
    rng = np.random.default_rng(0)
    examples = [
        TextExample(str(i), " ".join(rng.choice(list("abc"), size)), None, "xy"[i % 2], f"f:{i}")
        for i, size in enumerate(rng.integers(1, 62, 70))
    ]
    estimator = Estimator(task, RunConfig(str(tmp_path / "run"), eval_batch_size=16))
    for weight in estimator.model.trainable_variables:
        weight.assign(weight * 8)
    outputs = {}
    for pad_to_max in (False, True):
        source = task.open_examples(examples, "eval", str(tmp_path), pad_to_max=pad_to_max)
        batches = source.eval_input_fn(InputContext(16))
        lengths = {batch["input_mask"].shape[1] for batch in batches}
        assert (lengths == {64}) == pad_to_max
        outputs[pad_to_max] = estimator._outputs(source.eval_input_fn, None, "eval")
    np.testing.assert_array_equal(outputs[False]["label_ids"], [i % 2 for i in range(70)])
    assert np.ptp(outputs[True]["probabilities"][:, 0]) > 0.01
    np.testing.assert_allclose(
        outputs[False]["probabilities"], outputs[True]["probabilities"], atol=1e-5
    )
