# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The compiled training loop and the compiled prediction step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from albert_tf.data.context import InputContext, InputFn
from albert_tf.errors import AlbertError
from albert_tf.io.tensorflow_import import check_not_forked
from albert_tf.keras2 import keras
from albert_tf.modeling.kernels.graph_mode import (
    GraphMode,
    TrainingStep,
    freed_with_graph,
    graph_mode,
    training_step,
)
from albert_tf.optimization.loss_scale import MIN_SCALE, LossScale
from albert_tf.optimization.optimizer import AlbertOptimizer
from albert_tf.training.cluster import Strategy
from albert_tf.training.devices import devices_of, mode_chooser
from albert_tf.training.specs import FLOAT16, RunConfig
from albert_tf.training.task import Arrays, Batch, JointTask, Task, Tensors

#: No code here needs AutoGraph, which would take as long as the tracing itself.
_without_autograph = tf.autograph.experimental.do_not_convert
_fold_in = tf.random.experimental.stateless_fold_in


def distribute(
    strategy: Strategy, input_fn: InputFn, batch_size: int, start_step: int = 0
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Distributes an input function: each pipeline's part of a global batch, split by replica."""
    if strategy.num_replicas_in_sync == 1 and devices_of(strategy)[0].device_type == "CPU":
        # There is nothing to distribute, and tf.distribute would put another data set around this
        # one, with autotuning; see FileInput.
        return _without_autograph(input_fn)(InputContext(batch_size, start_step))

    def dataset_fn(context) -> tf.data.Dataset:
        pipelines = context.num_input_pipelines
        dataset = input_fn(
            InputContext(batch_size, start_step, pipelines, context.input_pipeline_id)
        )
        replicas = context.num_replicas_in_sync // pipelines
        if replicas == 1:
            return dataset
        rows = batch_size // pipelines // replicas
        return dataset.flat_map(
            lambda batch: tf.data.Dataset.from_tensor_slices(_split(batch, replicas, rows))
        )

    return strategy.distribute_datasets_from_function(_without_autograph(dataset_fn))


def _graph(
    function: Callable[..., Any], jit_compile: bool = False, inline: bool = False
) -> Callable[..., Any]:
    # In a function inlined into a loop, shapes are unknown to the graph optimizer, which then does
    # not fuse the attention mask into oneDNN's products. Inlining takes less memory, though.
    attributes = None if jit_compile or inline else {"_noinline": True}
    return tf.function(
        _without_autograph(function),
        autograph=False,
        jit_compile=jit_compile or None,
        experimental_attributes=attributes,
    )


def _graphs(function: Callable[..., Any], inline: bool = False) -> dict[bool, Callable[..., Any]]:
    """Returns the graphs of a function without and with XLA, by `jit_compile`."""
    return {jit_compile: _graph(function, jit_compile, inline) for jit_compile in (False, True)}


def _split(batch: Batch, parts: int, rows: int) -> Tensors:
    """Splits each [parts * rows, ...] into [parts, rows, ...]; lengths may be unknown."""
    return {
        name: tf.reshape(value, tf.concat([[parts, rows], tf.shape(value)[1:]], 0))
        if None in value.shape
        else tf.reshape(value, [parts, rows, *value.shape[1:]])
        for name, value in batch.items()
    }


def _sum_over_replicas(values: Any) -> Any:
    replica = tf.distribute.get_replica_context()
    return freed_with_graph(replica.all_reduce(tf.distribute.ReduceOp.SUM, values))


def _time_of(values: tf.Tensor | Batch) -> tf.Tensor:
    """Returns the time at which all values are computed, float64 seconds."""
    with tf.control_dependencies(tf.nest.flatten(values, expand_composites=True)):
        return tf.timestamp()


class TrainLoop:
    """Runs training steps on the device, many per call.

    The gradient is that of the loss over the global batch, regardless of how replicas and
    micro-batches split it: the loss weights are summed over all of them first. It is clipped once,
    after the sum over replicas. A step changes no weight if its loss or gradient is not finite.
    Weights that the loss does not depend on keep their values and slots, as in the release.

    With precision "mixed_float16" the loss is scaled for the backward pass. Gradients are divided
    by the scale in float32, as soon as they are those of weights: before micro-batches and replicas
    are added up, and before they are clipped.

    Model and optimizer were created in the scope of the strategy. `loss_scale` is for checkpoints;
    it is None for precisions that need none.
    """

    def __init__(
        self,
        strategy: Strategy,
        task: Task,
        model: keras.Model,
        optimizer: AlbertOptimizer,
        config: RunConfig,
    ) -> None:
        check_not_forked()
        self._strategy, self._task, self._model = strategy, task, model
        self._optimizer, self._config = optimizer, config
        self.loss_scale = None
        if config.precision == FLOAT16:
            with strategy.scope():
                self.loss_scale = LossScale()
        self._mode_of = mode_chooser(strategy, config.jit_compile)
        self._gradients = _graphs(self._micro_batch_gradients, inline=config.recompute)
        self._vectors = _graphs(self._micro_batch_vectors)
        self._loop = _graph(self._steps)

    def run(self, iterator: Iterator[Any], steps: int, layers: int | None = None) -> Arrays:
        """Runs `steps` steps with the next batches of `iterator`; see TrainingStep about `layers`.

        Returns:
          float32 [steps] for the entries of `Task.means` and for learning_rate, gradient_norm,
          finite (1 or 0), tokens (unmasked ones), positions (all of them) and input_wait (seconds).
          With a loss scale also loss_scale, which the step used, and overflowed (1 or 0): the loss
          was finite and the gradient was not, so that a smaller scale may help.
        """
        values = self._loop(iterator, tf.constant(steps), layers)
        return {name: value.numpy() for name, value in values.items()}

    def _steps(
        self, iterator: Iterator[Any], steps: tf.Tensor, layers: int | None = None
    ) -> Tensors:
        names = []

        def replica_step(batch) -> tf.Tensor:
            metrics = self.replica_step(batch, layers)
            names[:] = sorted(metrics)
            return tf.stack([metrics[name] for name in names])

        def step(i, history, finished) -> tuple:
            # TensorFlow may begin a step, and ask for its batch, before the previous step has
            # finished. Waiting for input starts when both have happened.
            wanted = tf.maximum(tf.timestamp(), finished)
            batch = next(iterator)
            arrived = _time_of(batch)
            wait = tf.maximum(arrived - wanted, 0.0)
            # Otherwise one thread may run the whole step before it reads the clock.
            with tf.control_dependencies([arrived]):
                metrics = self._strategy.run(replica_step, args=(batch,))
            metrics = self._strategy.experimental_local_results(metrics)[0]
            history = history.write(i, tf.concat([metrics, [tf.cast(wait, tf.float32)]], 0))
            return i + 1, history, _time_of(metrics)

        start = (0, tf.TensorArray(tf.float32, size=steps), tf.timestamp())
        history = tf.while_loop(lambda i, *_: i < steps, step, start)[1].stack()
        names.append("input_wait")
        return dict(zip(names, tf.unstack(history, len(names), axis=1)))

    def replica_step(self, batch: Batch, layers: int | None = None) -> Tensors:
        """Takes one optimizer step with a replica's batch; returns float32 scalars, the metrics."""
        replica = tf.distribute.get_replica_context()
        rows = self._config.train_batch_size // replica.num_replicas_in_sync
        # On several machines, batches from the iterator have no static number of rows.
        batch = {k: tf.ensure_shape(v, [rows, *v.shape[1:]]) for k, v in batch.items()}
        counts = {
            "tokens": tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32)),
            "positions": tf.cast(tf.size(batch["input_mask"]), tf.float32),
        }
        weights, counts = _sum_over_replicas((self._task.weights(batch), counts))
        seed = tf.constant([self._config.seed, 1], tf.int32)
        for number in (self._optimizer.iterations, replica.replica_id_in_sync_group):
            seed = _fold_in(seed, tf.cast(number, tf.int32))
        if isinstance(self._task, JointTask):
            batch = self._with_shared(batch, seed, layers)
        gradients, sums = self._accumulate(batch, weights, seed, layers)
        if not gradients:
            raise AlbertError(
                "There is nothing to train: the loss depends on frozen weights only. Set "
                "`trainable` of a layer that it depends on to True."
            )
        # The sums as one vector: each value that replicas add up takes its time.
        gradients, values = _sum_over_replicas((gradients, tf.stack(list(sums.values()))))
        means = self._task.means(dict(zip(sums, tf.unstack(values))), weights)
        clipped, norm = tf.clip_by_global_norm(list(gradients.values()), self._config.clip_norm)
        loss_finite, norm_finite = tf.math.is_finite(means["loss"]), tf.math.is_finite(norm)
        finite = loss_finite & norm_finite
        metrics = {
            **means,
            **counts,
            "learning_rate": self._optimizer.learning_rate,
            "gradient_norm": norm,
            "finite": finite,
        }
        if self.loss_scale:
            metrics["loss_scale"] = tf.identity(self.loss_scale.value)
            metrics["overflowed"] = loss_finite & ~norm_finite & (self.loss_scale.value > MIN_SCALE)
            self.loss_scale.update(norm_finite)
        self._optimizer.apply_gradients_if(finite, dict(zip(gradients, clipped)))
        return {name: tf.cast(value, tf.float32) for name, value in metrics.items()}

    def _with_shared(self, batch: Batch, seed: tf.Tensor, layers: int | None) -> Batch:
        """Adds `JointTask.share` to a replica's batch that is only a part of the global one."""
        parts, mode = self._config.gradient_accumulation_steps, self._mode_of(batch)
        replica = tf.distribute.get_replica_context()
        if parts * replica.num_replicas_in_sync == 1:
            return batch
        rows = next(iter(batch.values())).shape[0]
        part_vectors = self._vectors[mode is GraphMode.XLA]
        micro_batches = _split(batch, parts, rows // parts)

        def vectors_of(i) -> tf.Tensor:
            part = {k: v[i] for k, v in micro_batches.items()}
            part_seed = _fold_in(seed, i) if parts > 1 else seed  # As in `_accumulate`.
            return part_vectors(mode, part, part_seed, layers)

        vectors = tf.map_fn(vectors_of, tf.range(parts), fn_output_signature=tf.float32)
        # As one tensor: TensorFlow crashes if it gathers targets without columns.
        whole = tf.concat([tf.reshape(vectors, [rows, -1]), batch["targets"]], axis=1)
        if replica.num_replicas_in_sync > 1:
            whole = replica.all_gather(whole, axis=0)
        flat, targets = tf.split(whole, [-1, batch["targets"].shape[1]], axis=1)
        begin = replica.replica_id_in_sync_group * rows
        shared = self._task.share(tf.reshape(flat, [-1, *vectors.shape[2:]]), targets)
        return {**batch, **{k: v[begin : begin + rows] for k, v in shared.items()}}

    def _micro_batch_vectors(
        self, mode: GraphMode, batch: Batch, seed: tf.Tensor, layers: int | None
    ) -> tf.Tensor:
        """Returns the vectors that `_micro_batch_gradients` will compute again."""
        with graph_mode(mode), training_step(TrainingStep(seed, layers, self._config.recompute)):
            return self._task.vectors(self._model, batch, training=True)

    def _accumulate(
        self, batch: Batch, weights: Tensors, seed: tf.Tensor, layers: int | None
    ) -> tuple[Tensors, Tensors]:
        """Returns `_micro_batch_gradients`, added over the micro-batches."""
        parts, mode = self._config.gradient_accumulation_steps, self._mode_of(batch)
        part_gradients = self._gradients[mode is GraphMode.XLA]
        if parts == 1:
            return part_gradients(mode, dict(batch), weights, seed, layers)
        rows = next(iter(batch.values())).shape[0] // parts
        micro_batches = _split(batch, parts, rows)

        def add_part(i, totals) -> tuple[tf.Tensor, Any]:
            part_seed = _fold_in(seed, i)
            part = {k: v[i] for k, v in micro_batches.items()}
            more = part_gradients(mode, part, weights, part_seed, layers)
            return i + 1, tf.nest.map_structure(tf.add, totals, more)

        # Traced before the loop, which needs the number of gradients.
        first = {k: v[0] for k, v in micro_batches.items()}
        traced = part_gradients.get_concrete_function(mode, first, weights, seed, layers)
        zeros = tf.nest.map_structure(
            lambda x: tf.zeros(x.shape, x.dtype), traced.structured_outputs
        )
        return tf.while_loop(lambda i, _: i < parts, add_part, (0, zeros))[1]

    def _micro_batch_gradients(
        self, mode: GraphMode, batch: Batch, weights: Tensors, seed: tf.Tensor, layers: int | None
    ) -> tuple[Tensors, Tensors]:
        """Returns the gradients by the names of their weights, and the float32 sums.

        Weights that the loss does not depend on have no gradient.
        """
        step = TrainingStep(seed, layers, self._config.recompute)
        # There is no backward pass for weights that are not watched.
        tape = tf.GradientTape(watch_accessed_variables=False)
        with graph_mode(mode), training_step(step):
            with tape:
                tape.watch(list(self._optimizer.named_weights.values()))
                sums = self._task.sums(self._model, batch, training=True)
                loss = self._task.means(sums, weights)["loss"]
                if self.loss_scale:
                    loss *= self.loss_scale.value
            gradients = tape.gradient(loss, self._optimizer.named_weights)
        found = {
            name: tf.convert_to_tensor(gradient)
            for name, gradient in gradients.items()
            if gradient is not None
        }
        if self.loss_scale:
            inverse = 1.0 / self.loss_scale.value
            found = {name: gradient * inverse for name, gradient in found.items()}
        return found, {name: tf.cast(value, tf.float32) for name, value in sums.items()}


class Predictor:
    """Runs `Task.predict` over a data set, batch by batch; see TrainLoop and RunConfig."""

    def __init__(
        self, strategy: Strategy, task: Task, model: keras.Model, jit_compile: bool | str
    ) -> None:
        self._strategy, self._task, self._model = strategy, task, model
        self._step = _graph(self._distributed_step)
        self._mode_of = mode_chooser(strategy, jit_compile)
        self._compute = _graphs(self._predict)

    def __call__(self, iterator: Iterator[Any]) -> Arrays | None:
        """Returns the next batch's outputs and `example_index` without padding; None at the end."""
        check_not_forked()
        try:
            outputs = {k: v.numpy() for k, v in self._step(iterator).items()}
        except tf.errors.OutOfRangeError:
            return None
        real = outputs["example_index"] >= 0
        return {k: v[real] for k, v in outputs.items()}

    def _distributed_step(self, iterator: Iterator[Any]) -> Tensors:
        # `next` inside the graph: batches of other lengths do not need another graph.
        outputs = self._strategy.run(self._replica_step, args=(next(iterator),))
        if self._strategy.num_replicas_in_sync == 1:
            return {k: self._strategy.experimental_local_results(v)[0] for k, v in outputs.items()}
        return {k: self._strategy.gather(v, axis=0) for k, v in outputs.items()}

    def _replica_step(self, batch: Batch) -> Tensors:
        mode = self._mode_of(batch)
        outputs = self._compute[mode is GraphMode.XLA](mode, dict(batch))
        return {**outputs, "example_index": batch["example_index"]}

    def _predict(self, mode: GraphMode, batch: Batch) -> Tensors:
        with graph_mode(mode):
            return self._task.predict(self._model, batch)
