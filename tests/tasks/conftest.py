# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A tokenizer of letters, the configuration of a tiny model for it, and training in two ways."""

import json

import numpy as np
import pytest

from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from tests.support.builders import tiny_config, vocabulary, write_tokenizer
from tests.support.script_flags import parsed_flags
from tests.support.weights import weights_of, write_model

LETTERS = "abcdefghij"
CONFIG = tiny_config(len(vocabulary(LETTERS)), max_position_embeddings=64)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("letters"), LETTERS)


@pytest.fixture
def task(tokenizer):
    """A classification with two labels and without dropout."""
    return TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(("x", "y"), 64), 0.0)


def trained_both_ways(script, kind, tokenizer, folder, rows, **settings):
    """Trains on rows in Python, and on JSON lines of them with the script.

    Both evaluate on all rows but the first. Returns both models, after it has compared their
    weights, settings and metrics.
    """
    write_model(folder / "model", AlbertPretrainer(tiny_config(tokenizer.vocab_size)))
    tokenizer.save(str(folder / "model"))
    data, dev = folder / "train.jsonl", folder / "dev.jsonl"
    for path, chosen in ((data, rows), (dev, rows[1:])):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in chosen))
    flags = {"do_train": True, "do_eval": True, "train_file": data, "eval_file": dev}
    flags |= {"init_checkpoint": folder / "model", "output_dir": folder / "script", **settings}
    with parsed_flags(script.define_flags, *(f"--{k}={v}" for k, v in flags.items())):
        script._main()
    python = kind.train(folder / "model", rows, rows[1:], output_dir=folder / "python", **settings)
    scripted = kind.load(folder / "script")
    expected = weights_of(scripted.model)
    for name, weight in weights_of(python.model).items():
        np.testing.assert_array_equal(weight, expected[name], name)
    assert python.task.spec == scripted.task.spec
    results = json.loads((folder / "script/eval_results.json").read_text())
    assert python.evaluate(dev) == pytest.approx(results, abs=1e-6)
    return python, scripted
