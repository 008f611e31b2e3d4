# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks.gpu_step.text: batches that are built from text, without TensorFlow."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data_prep.documents import tokenize
from albert_tf.training.monitors import read_metrics
from albert_tf.weights.load import open_source
from albert_tf.weights.run_folder import RunFolder
from benchmarks.gpu_step import emit, text
from benchmarks.gpu_step.program import BATCH, INITIAL_FILE, WEIGHT, Parameter, Program, load_state
from benchmarks.random_step import random_columns
from tests.support.builders import tiny_config, vocabulary, write_tokenizer
from tests.support.device_side import needs_jax, run_here, run_with_jax

pytestmark = pytest.mark.tooling

LENGTH, ROWS, PREDICTIONS = 32, 8, 8
WORDS = [f"w{i}" for i in range(200)]
CONFIG = tiny_config(len(vocabulary(WORDS)))
SCHEDULE = {"learning_rate": 0.01, "num_train_steps": 10, "num_warmup_steps": 2}
SEQUENCES, PREDICTED = (ROWS, LENGTH), (ROWS, PREDICTIONS)
PROGRAM = Program(
    step={"seq_length": LENGTH, "rows": ROWS},
    config={"vocab_size": CONFIG.vocab_size},
    schedule={},
    flops=0.0,
    parameters=(
        *(Parameter(BATCH, f"input_{name}", SEQUENCES, "int32") for name in ("mask", "type_ids")),
        Parameter(BATCH, "input_word_ids", SEQUENCES, "int32"),
        *(Parameter(BATCH, f"masked_lm_{x}", PREDICTED, "int32") for x in ("ids", "positions")),
        Parameter(BATCH, "masked_lm_weights", PREDICTED, "float32"),
        Parameter(BATCH, "next_sentence_labels", (ROWS,), "int32"),
    ),
    metrics=(),
    updates=(),
    seed=0,
    stddev=0.02,
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


@pytest.fixture(scope="module")
def documents(tokenizer):
    """Forty documents of twenty sentences of random words."""
    rng = np.random.default_rng(1)
    lines = []
    for _ in range(40):
        lines += [" ".join(rng.choice(WORDS, rng.integers(3, 15))) for _ in range(20)]
        lines.append("")
    return tokenize(lines, tokenizer)


@pytest.fixture(scope="module")
def path(tokenizer, documents, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("text") / "text.npz.xz")
    text.save_text(path, documents, tokenizer)
    return path


def batches(path, seed=1, workers=1, step=0, count=150, **options):
    """The first batches after a step; 150 are more than one pass over the text."""
    examples = [{"short_seq_prob": 0, **options}]
    found = text.TextBatches(path, PROGRAM, examples, seed, workers, num_buckets=3)
    try:
        return list(itertools.islice(found.after(step), count))
    finally:
        found.close()


def equal(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_batches_have_the_programs_shapes_and_the_builders_masks(path, tokenizer):
    found = batches(path)
    for parameter in PROGRAM.parameters:
        assert {batch[parameter.name].shape for batch in found} == {parameter.shape}
        assert {str(batch[parameter.name].dtype) for batch in found} == {parameter.dtype}
    columns = {name: np.concatenate([batch[name] for batch in found]) for name in found[0]}
    lengths = columns["input_mask"].sum(1)
    assert (columns["input_word_ids"][:, 0] == tokenizer.cls_id).all()
    wanted = np.minimum(PREDICTIONS, np.maximum(1, np.rint(lengths * PREDICTIONS / LENGTH)))
    assert np.mean(columns["masked_lm_weights"].sum(1) == wanted) > 0.95
    used = columns["masked_lm_weights"] > 0
    ids = np.take_along_axis(columns["input_word_ids"], columns["masked_lm_positions"], 1)
    assert np.mean(ids[used] == tokenizer.mask_id) == pytest.approx(0.8, abs=0.02)
    assert np.mean(ids[used] == columns["masked_lm_ids"][used]) == pytest.approx(0.1, abs=0.02)
    assert columns["next_sentence_labels"].mean() == pytest.approx(0.5, abs=0.05)


def test_batches_depend_on_the_seed_but_not_on_the_workers(path):
    first = batches(path, count=60)
    assert all(map(equal, first, batches(path, workers=3, count=60)))
    assert not any(map(equal, first, batches(path, seed=2, count=60)))
    assert all(map(equal, first[40:], batches(path, step=40, count=20)))


def test_neither_building_nor_detecting_divergence_needs_tensorflow():
    program = (
        "import sys; sys.modules.update(tensorflow=None, absl=None); "
        "import benchmarks.gpu_step.text, benchmarks.gpu_step.pretrain"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@needs_jax
@pytest.mark.slow
def test_a_run_on_text_goes_on_with_the_next_batches(path, tmp_path):
    CONFIG.to_json(str(tmp_path / "config.json"))
    options = emit.Options(SCHEDULE, masked_share=PREDICTIONS / LENGTH, neighbor_attention=True)
    one = str(tmp_path / "program")
    emit.emit(emit.Shape(str(tmp_path / "config.json"), LENGTH, ROWS), one, options)
    initial = load_state(f"{one}/{INITIAL_FILE}")
    assert "bert/embeddings/position_embeddings" in initial

    def pretrain(folder, steps, *more):
        run_with_jax(
            "pretrain", f"--program={one}", f"--text={path}", "--workers=1", "--log_steps=2",
            f"--output_dir={tmp_path / folder}", f"--steps={steps}", *more,
        )  # fmt: skip
        return load_state(str(tmp_path / folder / f"state-{steps}.npz"))

    first = pretrain("a", 2, f"--state={one}/{INITIAL_FILE}")
    second = ("--seed=2", f"--state={tmp_path}/a/state-2.npz")
    whole = pretrain("b", 8, *second)
    pretrain("c", 4, *second)
    resumed = pretrain("c", 8, *second)
    assert first["step"] == 2 and whole["step"] == 8
    assert equal(whole, resumed)
    with pytest.raises(AssertionError, match="was trained on other data"):
        pretrain("c", 9, "--seed=3")
    assert [entry["step"] for entry in read_metrics(RunFolder(str(tmp_path / "c")))] == [4, 6, 8]

    records_file = str(tmp_path / "a.tfrecord")
    columns = random_columns(CONFIG, LENGTH, 2 * ROWS, PREDICTIONS / LENGTH)
    layout = records.pretraining_features(LENGTH, PREDICTIONS)
    records.write_shard(records_file, records.encode_examples(columns, layout))
    run_here(
        "-m", "benchmarks.gpu_step", "checkpoint", f"--program={one}",
        f"--state={tmp_path}/c/state-8.npz", f"--input_file={records_file}",
        f"--output_dir={tmp_path}/run",
        f"--metrics={tmp_path}/a/metrics.jsonl,{tmp_path}/c/metrics.jsonl",
    )  # fmt: skip
    assert [entry["step"] for entry in read_metrics(RunFolder(str(tmp_path / "run")))] == [
        2,
        4,
        6,
        8,
    ]
    source = open_source(str(tmp_path / "run"))
    for parameter in Program.load(one).of_kind(WEIGHT):
        assert np.array_equal(source.read(parameter.name), resumed[parameter.name])
