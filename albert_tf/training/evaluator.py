# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The model of a task on its devices: evaluates and predicts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.data.context import InputContext, InputFn
from albert_tf.errors import AlbertError, DivergedError
from albert_tf.io.progress import Progress
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.training.checkpoints import load_weights
from albert_tf.training.data_errors import data_errors
from albert_tf.training.devices import announce_devices
from albert_tf.training.loop import Predictor, distribute
from albert_tf.training.preemption import lost_workers
from albert_tf.training.run_identity import recorded_precision
from albert_tf.training.specs import ENCODER, EvalSpec, RunConfig, check_batch_sizes
from albert_tf.training.strategy import fast_precision, highest, is_chief, make_strategy
from albert_tf.training.task import Task
from albert_tf.training.tpu import check_tpu_run
from albert_tf.weights.checkpoint_files import has_checkpoint


class Evaluator:
    """Evaluates and predicts with the model of one task.

    Args:
      task: gives the model.
      run_config: its devices, precision and batch sizes.

    Attributes:
      strategy: of the devices.
      chief: whether this process writes the files, as one of a cluster's does.
      task: as given.
      config: as given, with the precision that "auto" stands for.
      model: built by the task.

    Raises:
      AlbertError: the devices are not there, or the batch sizes do not divide among them.
    """

    def __init__(self, task: Task, run_config: RunConfig) -> None:
        self.strategy = make_strategy(run_config)
        announce_devices(self.strategy)
        self.chief = is_chief(self.strategy)
        if run_config.precision == "auto":
            run_config = dataclasses.replace(run_config, precision=self._precision(run_config))
        self.task, self.config = task, run_config
        check_batch_sizes(run_config, self.strategy.num_replicas_in_sync)
        keras.utils.set_random_seed(run_config.seed)
        with self.strategy.scope(), _policy(run_config.precision):
            self.model = task.build_model()
        if run_config.freeze:
            _freeze(self.model, run_config.freeze)
        self._predictor = Predictor(self.strategy, task, self.model, run_config.jit_compile)
        # Evaluations are often repeated, and making their input is a large part of a short one.
        self._inputs: dict[InputFn, tf.distribute.DistributedDataset] = {}

    def _precision(self, run_config: RunConfig) -> str:
        """What "auto" stands for: the precision of the run that is there, or else the fastest."""
        fast = fast_precision(self.strategy)
        kept = recorded_precision(run_config.output_dir) or fast
        if kept != fast:
            print(
                f"{run_config.output_dir} was trained in {kept}, which --precision=auto keeps; "
                f"for a new run on these devices it would choose {fast}."
            )
        return kept

    @lost_workers()
    def evaluate(self, eval_spec: EvalSpec, checkpoint: str | None = None) -> dict[str, float]:
        """Metrics of a checkpoint: by default the output directory's best, or else newest, one."""
        self.load(checkpoint)
        return self.evaluate_now(eval_spec)

    @lost_workers()
    def predict(
        self, input_fn: InputFn, checkpoint: str | None = None, max_steps: int | None = None
    ) -> dict[str, np.ndarray]:
        """Outputs of `Task.predict` for every example, [examples, ...], in their order.

        Args:
          input_fn: yields the batches, once.
          checkpoint: as in `evaluate`.
          max_steps: at most so many batches; how many there are, for the time left.

        Raises:
          DivergedError: an output is NaN.
        """
        self.load(checkpoint)
        outputs = self.outputs(EvalSpec(input_fn, max_steps=max_steps, name="predict"))
        bad = _rows_with_nan(outputs)
        if bad:
            raise DivergedError(
                f"The model gives NaN for {bad:,} of {len(next(iter(outputs.values()))):,} "
                "examples: its training has diverged. Use another checkpoint, or train again with "
                "a lower learning rate."
            )
        return outputs

    @lost_workers()
    def evaluate_now(
        self, eval_spec: EvalSpec, stopped: Callable[[], object] | None = None
    ) -> dict[str, float] | None:
        """Metrics of the weights as they are; all are NaN if an output of the model is.

        Args:
          eval_spec: what to evaluate on.
          stopped: asked before each batch; the evaluation ends, with None, once it says yes. All
            workers of a cluster must get the same answer.
        """
        outputs = self.outputs(eval_spec, stopped)
        if outputs is None:
            return None
        return self.metrics(eval_spec, outputs)

    def metrics(self, eval_spec: EvalSpec, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Metrics of what `outputs` gave for a data set; all are NaN if an output is."""
        if _rows_with_nan(outputs):
            # The best of several NaNs is the first one: an accuracy would pass for a result.
            zeros = {name: np.nan_to_num(values) for name, values in outputs.items()}
            return dict.fromkeys(self.task.metrics(zeros, eval_spec.examples), float("nan"))
        return self.task.metrics(outputs, eval_spec.examples)

    def check_input(self, input_fn: InputFn, batch_size: int) -> None:
        """Raises AlbertError if the devices cannot run on such batches or reach their files."""
        if isinstance(self.strategy, tf.distribute.TPUStrategy):
            batch = input_fn(InputContext(batch_size)).element_spec
            files = getattr(input_fn, "files", ())
            check_tpu_run(self.config, self.strategy.num_replicas_in_sync, batch, files)

    def load(self, checkpoint: str | None = None) -> None:
        """Loads the weights of a checkpoint, by default the one that `evaluate` takes."""
        highest(self.strategy)  # The chief may still be writing what is to be read.
        if checkpoint is None:
            checkpoint = self.config.output_dir
            if self.config.init_checkpoint and not has_checkpoint(checkpoint):
                checkpoint = self.config.init_checkpoint
        with self.strategy.scope():
            print(load_weights(checkpoint, self.model.named_weights(), whole=True))

    @lost_workers()
    def outputs(
        self, eval_spec: EvalSpec, stopped: Callable[[], object] | None = None
    ) -> dict[str, np.ndarray] | None:
        """Outputs of `Task.predict` with the weights as they are.

        Args:
          eval_spec: what for.
          stopped: see `evaluate_now`.

        Returns:
          The outputs, [examples, ...], in the examples' order; None if it was stopped.

        Raises:
          AlbertError: there are no examples, or the data is damaged.
        """
        collected: list[dict[str, np.ndarray]] = []
        input_fn, max_steps, label = eval_spec.input_fn, eval_spec.max_steps, eval_spec.name
        with data_errors(input_fn), Progress(label, max_steps, "batches") as progress:
            if input_fn not in self._inputs:
                size = self.config.eval_batch_size
                self.check_input(input_fn, size)
                self._inputs[input_fn] = distribute(self.strategy, input_fn, size)
            iterator = iter(self._inputs[input_fn])
            while len(collected) != max_steps:
                if stopped and stopped():
                    return None
                outputs = self._predictor(iterator)
                if outputs is None:
                    break
                collected.append(outputs)
                progress.update(1)
        if not collected:
            raise AlbertError(f"There is nothing to {label}: the data set is empty.")
        outputs = {k: np.concatenate([part[k] for part in collected]) for k in collected[0]}
        order = np.argsort(outputs.pop("example_index"), kind="stable")
        return {name: values[order] for name, values in outputs.items()}


def _rows_with_nan(outputs: Mapping[str, np.ndarray]) -> int:
    """For how many examples an output is NaN."""
    bad = np.zeros(len(next(iter(outputs.values()))), bool)
    for values in outputs.values():
        bad |= np.isnan(values).any(axis=tuple(range(1, values.ndim)))
    return int(bad.sum())


@contextlib.contextmanager
def _policy(name: str) -> Iterator[None]:
    """Sets Keras' mixed-precision policy while a model is built."""
    former = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(former)


def _freeze(model: keras.Model, part: str) -> None:
    """Makes a part of the model, one of FREEZABLE, not trainable."""
    encoder = getattr(model, "encoder", model)
    if not isinstance(encoder, AlbertEncoder):
        raise AlbertError(
            f"freeze={part!r} is for models with an AlbertEncoder in `encoder`; set `trainable` of "
            "the layers to False in `Task.build_model` instead."
        )
    (encoder if part == ENCODER else encoder.embeddings).trainable = False
