# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What benchmarks of the training step share: the real step on random records."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig

#: The flags' names of the precision policies.
PRECISIONS = {"float32": "float32", "bf16": "mixed_bfloat16"}
#: Share of the positions that is masked, the builder's.
MASKED_SHARE = 0.15


def predictions_of(seq_length: int, share: float = MASKED_SHARE) -> int:
    """Masked positions of an example."""
    return max(1, round(share * seq_length))


def random_columns(
    config: AlbertConfig, seq_length: int, examples: int, share: float = MASKED_SHARE
) -> dict[str, np.ndarray]:
    """Pretraining examples of random tokens, without padding."""
    rng = np.random.default_rng(0)
    shape = (examples, seq_length)
    predictions = predictions_of(seq_length, share)
    positions = rng.permuted(np.tile(np.arange(seq_length), (examples, 1)), axis=1)
    return {
        "input_ids": rng.integers(5, config.vocab_size, shape),
        "input_mask": np.ones(shape, np.int64),
        "segment_ids": np.tile(np.arange(seq_length) >= seq_length // 2, (examples, 1)),
        "token_boundary": np.ones(shape, np.int64),
        "masked_lm_positions": np.sort(positions[:, :predictions], axis=1),
        "masked_lm_ids": rng.integers(5, config.vocab_size, (examples, predictions)),
        "masked_lm_weights": np.ones((examples, predictions), np.float32),
        "next_sentence_labels": rng.integers(0, 2, examples),
    }


class RandomStep:
    """The pretraining step that `run_pretraining.py` makes, LAMB included, on random records.

    Args:
      config: the model.
      seq_length: positions of an example.
      batch_size: examples of a step.
      precision: a Keras policy.
      run_options: other fields of RunConfig.
    """

    def __init__(
        self,
        config: AlbertConfig,
        seq_length: int,
        batch_size: int,
        precision: str,
        **run_options: Any,
    ) -> None:
        from albert_tf.data import records
        from albert_tf.optimization.optimizer import AlbertOptimizer
        from albert_tf.tasks.pretraining.data import open_records
        from albert_tf.tasks.pretraining.task import PretrainingTask
        from albert_tf.training.devices import make_strategy
        from albert_tf.training.loop import TrainLoop, distribute
        from albert_tf.training.specs import RunConfig

        self._folder = tempfile.TemporaryDirectory()
        path = os.path.join(self._folder.name, "random.tfrecord")
        columns = random_columns(config, seq_length, 2 * batch_size)
        layout = records.pretraining_features(seq_length, predictions_of(seq_length))
        records.write_shard(path, records.encode_examples(columns, layout))
        source = open_records(path, config)
        task = PretrainingTask(config, source)
        run = RunConfig("unused", train_batch_size=batch_size, precision=precision, **run_options)
        strategy = make_strategy(run)
        with strategy.scope():
            self.model = task.build_model(precision)
            self.optimizer = AlbertOptimizer("lamb", 1e-4, self.model.named_weights())
        self._loop = TrainLoop(strategy, task, self.model, self.optimizer, run)
        self._batches = iter(distribute(strategy, source.train_input_fn, batch_size))

    def __call__(self, steps: int = 1) -> dict[str, np.ndarray]:
        """Makes steps; gives their metrics, float32 [steps] each."""
        return self._loop.run(self._batches, steps)
