# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs commands of the kit; a small model with a tokenizer."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest

from albert_tf.cli import script
from albert_tf.keras2 import keras
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf2
from benchmarks.paper import __main__ as kit
from tests.support.builders import tiny_config, write_vocabulary

WORDS = [f"w{i}" for i in range(60)]


@pytest.fixture
def run_command(run_script):
    """Runs a command of the kit in this process, as `run_command(name, *flags)`."""

    def run(name, *flags):
        command = types.SimpleNamespace(
            __name__=name, main=functools.partial(script.run, *kit.COMMANDS[name])
        )
        return run_script(command, *flags)

    return run


@pytest.fixture
def vocabulary(tmp_path):
    return write_vocabulary(tmp_path, [".", "?", *WORDS])


@pytest.fixture
def save_model(tmp_path, vocabulary):
    """Saves a random model: `save_model(name, write_tf1, **changes_of_the_configuration)`."""

    def save(name, write=write_tf2, with_tokenizer=True, **changes):
        tokenizer = Tokenizer.from_file(vocabulary)
        fields = {
            "vocab_size": tokenizer.vocab_size,
            "num_hidden_layers": 3,
            "max_position_embeddings": 64,
            "initializer_range": 0.3,
        }
        config = tiny_config(**{**fields, **changes})
        keras.utils.set_random_seed(3)
        weights = {k: v.numpy() for k, v in AlbertPretrainer(config).named_weights().items()}
        folder = tmp_path / name
        folder.mkdir()
        write(str(folder), config, tokenizer if with_tokenizer else None, weights)
        return folder

    return save


def sentences(number, seed=0):
    """Returns random sentences of 4 to 9 words."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 9, number)
    return [f"W{rng.integers(60)} {' '.join(rng.choice(WORDS, n))}." for n in lengths]
