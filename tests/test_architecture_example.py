# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The task in docs/architecture.md, "A new task", trains as it stands there."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.config import AlbertConfig
from albert_tf.tokenization.tokenizer import Tokenizer

pytestmark = pytest.mark.tooling

PAGE = Path(__file__).resolve().parents[1] / "docs/architecture.md"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"]
LENGTH, ROWS = 12, 64


@pytest.fixture
def example(tmp_path):
    """The page's program as a module."""
    path = tmp_path / "tagging.py"
    page = PAGE.read_text("utf-8")
    path.write_text(re.search(r"## A new task.*?```python\n(.*?)```", page, re.S)[1])
    spec = importlib.util.spec_from_file_location("tagging", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batches(context):
    """Letters to be tagged by whether they come early in the alphabet; padding is not tagged."""
    rng = np.random.default_rng(context.start_step)
    ids = rng.integers(5, len(PIECES), [ROWS, LENGTH]).astype(np.int32)
    mask = (np.arange(LENGTH) < rng.integers(4, LENGTH + 1, [ROWS, 1])).astype(np.int32)
    rows = {
        "input_word_ids": ids * mask,
        "input_mask": mask,
        "input_type_ids": np.zeros_like(ids),
        "tags": np.where(mask, ids < 13, -1).astype(np.int32),
        "example_index": np.arange(ROWS, dtype=np.int32),
    }
    return tf.data.Dataset.from_tensor_slices(rows).batch(context.batch_size, drop_remainder=True)


def test_task_of_the_page_learns_and_keeps_its_files(example, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(PIECES))
    config = AlbertConfig(len(PIECES), 16, 32, 2, 2, 64, max_position_embeddings=LENGTH)
    tokenizer = Tokenizer.from_file(str(vocabulary))
    task = example.TaggingTask(config, tokenizer, ["late", "early"], max_seq_length=LENGTH)
    run = albert_tf.RunConfig(
        str(tmp_path / "run"),
        train_batch_size=16,
        eval_batch_size=16,
        gradient_accumulation_steps=2,
        optimizer="adamw",
        learning_rate=3e-3,
        num_warmup_steps=10,
    )
    estimator = albert_tf.Estimator(task, run)
    held_out = albert_tf.EvalSpec(batches)
    before = estimator.evaluate_now(held_out)["accuracy"]
    results = estimator.train_and_evaluate(
        albert_tf.TrainSpec(lambda context: batches(context).repeat(), max_steps=80), held_out
    )
    assert before < 0.8
    assert results["accuracy"] > 0.95
    assert {"albert_config.json", "tokenizer.json", "task.json", "best"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
