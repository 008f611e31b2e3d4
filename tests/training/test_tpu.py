# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The requirements of a TPU; test_xla_step.py tests the compiled step itself."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.training.strategy import make_strategy
from albert_tf.training.tpu import check_tpu_run, tpu_name
from tests.support import builders

BATCH = {"input_word_ids": tf.TensorSpec([16, 8], tf.int32)}


def config(**values):
    defaults = {"output_dir": "gs://bucket/run", "train_batch_size": 64, "strategy": "tpu"}
    return RunConfig(**{**defaults, **values})


@pytest.fixture(autouse=True)
def no_name_in_the_environment(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)


@pytest.mark.parametrize(
    "values",
    [
        {"precision": "mixed_bfloat16", "gradient_accumulation_steps": 4},
        {"output_dir": "runs/local", "tpu_name": "local"},
        {"tpu_name": "pod", "jit_compile": False},
    ],
)
def test_valid_runs_pass(values):
    check_tpu_run(config(**values), BATCH, ["gs://bucket/records/a.tfrecord"])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"jit_compile": True}, "always compile with XLA; leave out `jit_compile`"),
        ({"tpu_name": "pod", "output_dir": "runs/a"}, "the TPU 'pod' cannot reach runs/a; put"),
        ({"tpu_name": "grpc://10.0.0.2:8470"}, "cannot reach records/a.tfrecord"),
    ],
)
def test_invalid_runs_are_refused(values, sentence):
    with pytest.raises(AlbertError, match=sentence):
        check_tpu_run(config(**values), BATCH, ["records/a.tfrecord"])


def test_float16_is_refused():
    with pytest.raises(AlbertError, match=r"is for GPUs; .* use `precision`=mixed_bfloat16\.$"):
        config(precision="mixed_float16")
    config(precision="mixed_float16", strategy="mirrored")


@pytest.mark.parametrize(
    ("shape", "dtype", "sentence"),
    [
        ([16, None], tf.int32, r"batches of one shape, and column has \(16, None\)"),
        ([None, 8], tf.int32, r"batches of one shape, and column has \(None, 8\)"),
        ([16], tf.string, "cannot read column, which is of type string"),
        ([16], tf.int64, "cannot read column, which is of type int64"),
    ],
)
def test_batches_that_a_tpu_cannot_read_are_refused(shape, dtype, sentence):
    batch = {**BATCH, "column": tf.TensorSpec(shape, dtype)}
    with pytest.raises(AlbertError, match=sentence):
        check_tpu_run(config(), batch)


def test_pretraining_batches_and_padded_examples_suit_a_tpu(tiny_config, record_paths, tmp_path):
    source = open_records(",".join(record_paths), tiny_config)
    for input_fn in (source.train_input_fn, source.eval_input_fn):
        check_tpu_run(config(), input_fn(InputContext(64)).element_spec)
    model = builders.tiny_config(6, max_position_embeddings=512)
    spec = ClassificationSpec(("x", "y"), 512)
    task = TextClassificationTask(model, builders.write_tokenizer(tmp_path, "a"), spec)
    examples = [TextExample(str(i), "a " * (i + 1), None, "x", f"f:{i}") for i in range(64)]

    def batch(pad_to_max):
        source = task.open_examples(examples, "train", pad_to_max=pad_to_max).source
        return source.train_input_fn(InputContext(64)).element_spec

    check_tpu_run(config(), batch(pad_to_max=True))
    with pytest.raises(AlbertError, match="set `pad_to_max`"):
        check_tpu_run(config(), batch(pad_to_max=False))


def test_the_tpu_comes_from_the_settings_or_the_environment_or_is_local(monkeypatch):
    assert tpu_name(config()) == "local"
    monkeypatch.setenv("TPU_NAME", "pod")
    assert tpu_name(config()) == "pod"
    assert tpu_name(config(tpu_name="other")) == "other"


def test_a_machine_without_a_tpu_says_so():
    with pytest.raises(AlbertError, match="found no TPU on this machine"):
        make_strategy(config())


def test_a_tpu_that_cannot_be_used_is_one_sentence():
    with pytest.raises(AlbertError, match="The TPU 'no-such-tpu' cannot be used: ") as error:
        make_strategy(config(tpu_name="no-such-tpu"))
    assert "\n" not in str(error.value)


def test_a_tpu_is_started_once_a_process(monkeypatch):
    """TensorFlow's part is replaced, as there is no TPU here."""
    started = []
    resolvers = tf.distribute.cluster_resolver

    def resolver(tpu):
        if tpu == "busy" and not started:
            raise RuntimeError("it is busy")
        return tpu

    monkeypatch.setattr(resolvers, "TPUClusterResolver", resolver)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda _: None)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", started.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: [resolver])
    with pytest.raises(AlbertError, match="'busy' cannot be used: it is busy"):
        make_strategy(config(tpu_name="busy"))
    first = make_strategy(config(tpu_name="pod"))
    assert make_strategy(config(tpu_name="pod", output_dir="gs://bucket/b")) is first
    make_strategy(config(tpu_name="busy"))
    assert started == ["pod", "busy"]
