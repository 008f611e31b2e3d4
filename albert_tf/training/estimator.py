# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The Estimator: trains, evaluates and predicts with the model of a task on its devices."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from albert_tf.data.context import InputContext, InputFn, data_errors
from albert_tf.errors import AlbertError
from albert_tf.io.log import log
from albert_tf.io.progress import Progress
from albert_tf.io.tensorflow_import import check_not_forked
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.training.cluster import barrier, is_chief, lost_workers, output_lock
from albert_tf.training.devices import (
    announce_devices,
    check_tpu_run,
    fast_precisions,
    make_strategy,
)
from albert_tf.training.loop import Predictor, distribute
from albert_tf.training.run import TrainingRun
from albert_tf.training.specs import ENCODER, EvalSpec, RunConfig, TrainSpec
from albert_tf.training.task import Arrays, Metrics, Task, examples_with_nan, in_order, without_nan
from albert_tf.weights.load import load_weights
from albert_tf.weights.run_folder import RunFolder, has_checkpoint

#: Held while random generators are seeded and used, as they belong to all threads.
_random_lock = threading.Lock()


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds all random generators; Python's and NumPy's have their former state afterwards."""
    with _random_lock:
        states = random.getstate(), np.random.get_state()
        keras.utils.set_random_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


class Estimator:
    """Trains, evaluates and predicts with the model of one task.

    Example:
      estimator = Estimator(task, RunConfig(output_dir="runs/mine", train_batch_size=64))
      estimator.train_and_evaluate(TrainSpec.of(source, max_steps=1000),
                                   EvalSpec(held_out.eval_input_fn, every_steps=100))

    Args:
      task: builds the model.
      run_config: devices, precision and batch sizes.

    Attributes:
      strategy: distributes over the devices.
      chief: whether this process writes files; one process of a cluster does.
      task: as passed in.
      config: as passed in, with "auto" replaced by a precision.
      folder: the output directory.
      model: built by the task.

    Raises:
      AlbertError: the devices are missing.
    """

    def __init__(self, task: Task, run_config: RunConfig) -> None:
        check_not_forked()
        self.strategy = make_strategy(run_config)
        announce_devices(self.strategy)
        self.chief = is_chief(self.strategy)
        self.folder = RunFolder(run_config.output_dir)
        if run_config.precision == "auto":
            # A run that exists keeps its precision.
            recorded = self.folder.recorded()
            known = recorded["run"].get("precision") if recorded else None
            precision = known or fast_precisions(self.strategy)[0]
            run_config = dataclasses.replace(run_config, precision=precision)
        self.task, self.config = task, run_config
        with _seeded(run_config.seed), self.strategy.scope():
            self.model = task.build_model(run_config.precision)
        if run_config.freeze:
            _freeze(self.model, run_config.freeze)
        self._predictor = Predictor(self.strategy, task, self.model, run_config.jit_compile)
        # Evaluations are often repeated, and creating the input takes much of a short one.
        self._inputs = {}  # By input function.

    @lost_workers()
    def train_and_evaluate(
        self, train_spec: TrainSpec, eval_spec: EvalSpec | None = None
    ) -> Metrics | None:
        """Trains, evaluates as `eval_spec` says, if at all, and keeps the best weights separately.

        Resumes a run of the same configuration in the output directory: weights, optimizer slots,
        step and position in the data. A signal to any worker ends the run with a checkpoint after
        the current steps: Ctrl-C by KeyboardInterrupt; SIGTERM, SIGHUP and SIGUSR1 by SystemExit
        with the exit status 143, 129 or 138. A second Ctrl-C raises KeyboardInterrupt without a
        checkpoint, once TensorFlow returns to Python.

        Returns:
          The metrics of the last evaluation, also of a run that was finished before; None without
          `eval_spec`.

        Raises:
          AlbertError: the directory holds another run, or best weights that this one would not
            replace for lack of evaluations; another process trains there; the devices cannot divide
            the batches evenly; early stopping has no evaluations; or the data is damaged.
          DivergedError: the training has diverged, and `on_divergence` ends the run.
        """
        with output_lock(self.config.strategy, self.config.output_dir):
            return TrainingRun(self, train_spec, eval_spec).run()

    @lost_workers()
    def evaluate(self, eval_spec: EvalSpec, checkpoint: str | None = None) -> Metrics:
        """Returns the metrics of a checkpoint.

        `checkpoint` is one, or a folder of them; by default the output directory, with its best or
        else its newest checkpoint.
        """
        self.load(checkpoint)
        return self.metrics(eval_spec, self.outputs(eval_spec))

    @lost_workers()
    def predict(
        self, input_fn: InputFn, checkpoint: str | None = None, max_steps: int | None = None
    ) -> Arrays:
        """Returns the outputs of `Task.predict`, [examples, ...], in the order of the examples.

        Args:
          input_fn: yields the batches, once.
          checkpoint: as in `evaluate`.
          max_steps: the most batches to predict; also used to estimate the time left.

        Raises:
          DivergedError: an output is NaN.
        """
        self.load(checkpoint)
        outputs = self.outputs(EvalSpec(input_fn, max_steps=max_steps, name="predict"))
        return without_nan(outputs)

    def metrics(self, eval_spec: EvalSpec, outputs: Arrays) -> Metrics:
        """Returns the metrics of the `outputs` for a data set; all are NaN if any output is."""
        if examples_with_nan(outputs):
            # The arg max of NaNs is the first entry, so an accuracy would look like a result.
            zeros = {name: np.nan_to_num(values) for name, values in outputs.items()}
            return dict.fromkeys(self.task.metrics(zeros, eval_spec.examples), float("nan"))
        return self.task.metrics(outputs, eval_spec.examples)

    def check_input(self, input_fn: InputFn, training: bool = False) -> None:
        """Raises AlbertError if the devices cannot process these batches."""
        name, parts = "eval_batch_size", self.strategy.num_replicas_in_sync
        if training:
            name, parts = "train_batch_size", parts * self.config.gradient_accumulation_steps
        size = getattr(self.config, name)
        if size % parts:
            raise AlbertError(
                f"`{name}`={size} is not divisible by {parts} (replicas"
                f"{' × `gradient_accumulation_steps`' if training else ''})."
            )
        if isinstance(self.strategy, tf.distribute.TPUStrategy):
            check_tpu_run(input_fn(InputContext(size)).element_spec)

    def load(self, checkpoint: str | None = None) -> None:
        """Loads the weights of a checkpoint, by default the same as `evaluate`."""
        barrier(self.strategy)  # The chief may still be writing it.
        if checkpoint is None:
            checkpoint = str(self.folder)
            if self.config.init_checkpoint and not has_checkpoint(checkpoint):
                checkpoint = self.config.init_checkpoint
        with self.strategy.scope():
            log.info(load_weights(checkpoint, self.model.named_weights(), whole=True))

    @lost_workers()
    def outputs(
        self, eval_spec: EvalSpec, stopped: Callable[[], object] | None = None
    ) -> Arrays | None:
        """Returns the outputs of `Task.predict` for the current weights, [examples, ...].

        They are in the order of the examples. `stopped` is called before each batch; the evaluation
        ends, with None, once it returns a true value. All workers of a cluster must get the same.

        Raises:
          AlbertError: the devices cannot divide the batches evenly, there are no examples, or the
            data is damaged.
        """
        collected, input_fn = [], eval_spec.input_fn
        max_steps, label = eval_spec.max_steps, eval_spec.name
        with data_errors(input_fn), Progress(label, max_steps, "batches") as progress:
            if input_fn not in self._inputs:
                self.check_input(input_fn)
                size = self.config.eval_batch_size
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
        return in_order(collected)


def _freeze(model: keras.Model, part: str) -> None:
    """Freezes a part of the model, one of FREEZABLE."""
    encoder = getattr(model, "encoder", model)
    if not isinstance(encoder, AlbertEncoder):
        raise AlbertError(
            f"`freeze`={part} needs a model with an AlbertEncoder in its attribute `encoder`; for "
            "other models, set `trainable` of the layers to False in `Task.build_model`."
        )
    (encoder if part == ENCODER else encoder.embeddings).trainable = False
