# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a TPU demands of the train step of every task: one XLA program of fixed shapes, no host."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.data.text_tables import TextExample
from albert_tf.optimization.optimizer import create_optimizer
from albert_tf.optimization.schedule import WarmupPolynomialDecay
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.features import MultipleChoiceSpec
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.tasks.pretraining import PretrainingTask, open_records
from albert_tf.tasks.squad.question_set import open_training_records
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.squad.windows import WindowOptions
from albert_tf.tasks.text_classification import ClassificationSpec, TextClassificationTask
from albert_tf.tokenization import Tokenizer
from albert_tf.training import loop as loop_module
from albert_tf.training.estimator import Estimator
from albert_tf.training.loop import TrainLoop, distribute
from data_prep.pretraining_build import Output, TokenizerSource, build_pretraining_data
from data_prep.pretraining_options import PretrainingOptions

WORDS = [f"w{i}" for i in range(35)]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LENGTH = 16
#: Operations that run on the host, or hand values to it.
HOST = re.compile("PyFunc|HostCompute|Outfeed|Infeed|Send|Recv|Print|Assert|Iterator|Timestamp")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES))
    return str(path)


def sentence(words, seed):
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def masked(config, vocabulary, folder, record_paths):
    source = open_records(",".join(record_paths), config)
    return PretrainingTask(config, source), source


def compact(config, vocabulary, folder, record_paths):
    lines = [sentence(6, i) if i % 20 else "" for i in range(100)]
    (folder / "text.txt").write_text("\n".join(lines))
    options = PretrainingOptions(
        max_seq_length=LENGTH, max_predictions_per_seq=3, record_format="compact"
    )
    inputs = [str(folder / "text.txt")], TokenizerSource(vocabulary)
    build_pretraining_data(*inputs, Output(str(folder / "records")), options)
    source = open_records(str(folder / "records"), config)
    return PretrainingTask(config, source), source


def classified(spec, labels, config, vocabulary, folder):
    examples = [
        TextExample(str(i), sentence(3 + i % 9, i), None, labels[i % 2], f"file:{i}")
        for i in range(16)
    ]
    task = TextClassificationTask(config, Tokenizer.from_file(vocabulary), spec)
    return task, task.open_examples(examples, "train", str(folder), train_seed=1, pad_to_max=True)


def classification(config, vocabulary, folder, record_paths):
    spec = ClassificationSpec(("x", "y"), LENGTH)
    return classified(spec, ("x", "y"), config, vocabulary, folder)


def regression(config, vocabulary, folder, record_paths):
    return classified(ClassificationSpec((), LENGTH), ("0.5", "4.5"), config, vocabulary, folder)


def multiple_choice(config, vocabulary, folder, record_paths):
    examples = [
        MultipleChoiceExample(
            str(i), sentence(8, i), sentence(3, 99 - i), tuple(WORDS[:3]), i % 3, "", f"file:{i}"
        )
        for i in range(16)
    ]
    spec = MultipleChoiceSpec(num_choices=3, max_seq_length=LENGTH, max_qa_length=6)
    task = MultipleChoiceTask(config, Tokenizer.from_file(vocabulary), spec)
    return task, task.open_examples(examples, "train", str(folder), train_seed=1, pad_to_max=True)


def squad(version, config, vocabulary, folder):
    qas = []
    for i in range(16):
        known = version == "1.1" or i % 2
        answer = {"text": WORDS[3], "answer_start": len(" ".join(WORDS[:3])) + 1}
        qas.append({"id": f"q{i}", "question": sentence(3, i), "answers": [answer] * bool(known)})
        if version == "2.0":
            qas[-1]["is_impossible"] = not known
    paragraph = {"context": " ".join(WORDS[:12]), "qas": qas}
    content = {"version": version, "data": [{"title": "T", "paragraphs": [paragraph]}]}
    path = folder / "squad.json"
    path.write_text(json.dumps(content))
    windows = WindowOptions(max_seq_length=LENGTH, max_query_length=4, doc_stride=4)
    spec = SquadSpec(version, windows=windows, start_n_top=2, end_n_top=2, n_best_size=3)
    task = SquadTask(config, Tokenizer.from_file(vocabulary), spec)
    return task, open_training_records(task, str(path), str(folder), 1, pad_to_max=True)


def squad_1(config, vocabulary, folder, record_paths):
    return squad("1.1", config, vocabulary, folder)


def squad_2(config, vocabulary, folder, record_paths):
    return squad("2.0", config, vocabulary, folder)


def operations(graph):
    """Names of all kinds of operations in a graph and in the functions it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    return kinds | {node.op for f in definition.library.function for node in f.node_def}


def program_of(step, batch):
    """XLA's text of a step."""
    return step.experimental_get_compiler_ir(batch)(stage="hlo")


def assert_fixed_and_without_the_host(kinds, program):
    assert not [kind for kind in kinds if HOST.search(kind)]
    # XLA writes a size that only running tells as <=N, and calls of other code as custom-call.
    assert "ENTRY" in program and "<=" not in program and "custom-call" not in program


@pytest.mark.parametrize(
    ("make", "micro_batches", "precision"),
    [
        (masked, 1, "float32"),
        (masked, 2, "mixed_bfloat16"),
        (compact, 1, "mixed_bfloat16"),
        (compact, 2, "float32"),
        (classification, 1, "mixed_bfloat16"),
        (regression, 1, "float32"),
        (squad_1, 1, "mixed_bfloat16"),
        (squad_2, 2, "mixed_bfloat16"),
        (multiple_choice, 1, "mixed_bfloat16"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_whole_train_step_is_one_xla_program_of_fixed_shapes_without_the_host(
    make, micro_batches, precision, tiny_config, vocabulary, tmp_path, record_paths, monkeypatch
):
    # As with TPUStrategy: told to be part of a compiled program, and compiled by who runs it.
    monkeypatch.setattr(loop_module, "_is_compiled", lambda *_: True)
    model = dataclasses.replace(tiny_config, num_hidden_layers=1)
    task, source = make(model, vocabulary, tmp_path, record_paths)
    config = RunConfig(
        str(tmp_path / "run"),
        train_batch_size=8,
        gradient_accumulation_steps=micro_batches,
        precision=precision,
        learning_rate=0.01,
        num_warmup_steps=0,
    )
    estimator = Estimator(task, config)
    weights = estimator.model.named_weights()
    with estimator.strategy.scope():
        schedule = WarmupPolynomialDecay(
            learning_rate=config.learning_rate, num_train_steps=10, num_warmup_steps=0
        )
        optimizer = create_optimizer("lamb", schedule, weights)
    loop = TrainLoop(estimator.strategy, task, estimator.model, optimizer, schedule, config)
    batch = next(iter(distribute(estimator.strategy, source.train_input_fn, 8)))
    assert all(value.shape.is_fully_defined() for value in batch.values())
    step = tf.function(loop.replica_step, jit_compile=True, autograph=False)
    compiled = estimator.strategy.run(
        lambda batch: (
            operations(step.get_concrete_function(batch).graph),
            program_of(step, batch),
        ),
        args=(batch,),
    )
    assert_fixed_and_without_the_host(*compiled)
    before = {name: value.numpy() for name, value in weights.items()}
    metrics = estimator.strategy.run(step, args=(batch,))
    assert np.isfinite(metrics).all()
    assert any((weights[name].numpy() != value).any() for name, value in before.items())


def test_what_a_tpu_cannot_do_is_seen():
    batch = tf.constant([1.0, 0.0, 2.0])
    varying = tf.function(lambda x: tf.boolean_mask(x, x > 0), jit_compile=True)
    with pytest.raises(AssertionError):
        assert_fixed_and_without_the_host(set(), program_of(varying, batch))
    calling = tf.function(lambda x: tf.numpy_function(np.sin, [x], tf.float32))
    kinds = operations(calling.get_concrete_function(batch).graph)
    with pytest.raises(AssertionError):
        assert_fixed_and_without_the_host(kinds, "ENTRY")
