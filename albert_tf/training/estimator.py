# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The Estimator: it owns time. Strategy, loop, checkpoints, resume, guards and logs of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.convert.checkpoint_files import has_checkpoint
from albert_tf.convert.source import first_line
from albert_tf.errors import AlbertError, DamagedError
from albert_tf.json_values import shown
from albert_tf.optimization.schedule import WarmupPolynomialDecay
from albert_tf.progress import Progress
from albert_tf.signals import exit_status
from albert_tf.training.checkpoints import CheckpointStore, load_weights
from albert_tf.training.divergence import NOT_FINITE, Alarm, DivergenceDetector
from albert_tf.training.loop import Predictor, TrainLoop, distribute
from albert_tf.training.monitors import InputWatch, MetricsLog, MetricsWindow, short_rate
from albert_tf.training.preemption import PreemptionHandler, lost_workers
from albert_tf.training.rollback import MAX_ROLLBACKS, DivergenceMemory, Rollbacks
from albert_tf.training.specs import (
    ROLLBACK,
    WARN,
    EvalSpec,
    InputContext,
    InputFn,
    RunConfig,
    TrainSpec,
)
from albert_tf.training.strategy import fast_precision, highest, is_chief, make_strategy
from albert_tf.training.task import Task
from albert_tf.training.tpu import check_batch_sizes, check_tpu_run

RUN_CONFIG = "run_config.json"
TRAINING_DATA = "training_data.json"
#: Seconds a loop on the device may take, so that the host keeps talking.
LOOP_SECONDS = 5.0


class Estimator:
    """Trains, evaluates and predicts with the model of one task.

    Args:
      task: what is trained.
      run_config: how.

    Attributes:
      chief: whether this process writes the files, as one of a cluster's does.

    Raises:
      AlbertError: the devices are not there, or the batch sizes do not divide among them.

    Example:
      estimator = Estimator(task, RunConfig(output_dir="runs/mine", train_batch_size=64))
      estimator.train_and_evaluate(TrainSpec(source.train_input_fn, max_steps=1000),
                                   EvalSpec(held_out.eval_input_fn, every_steps=100))
    """

    def __init__(self, task: Task, run_config: RunConfig) -> None:
        self.strategy = make_strategy(run_config)
        self.chief = is_chief(self.strategy)
        if run_config.precision == "auto":
            run_config = dataclasses.replace(run_config, precision=fast_precision(self.strategy))
        self.task, self.config = task, run_config
        check_batch_sizes(run_config, self.strategy.num_replicas_in_sync)
        tf.keras.utils.set_random_seed(run_config.seed)
        with self.strategy.scope(), _precision(run_config.precision):
            self.model = task.build_model()
        self._predictor = Predictor(self.strategy, task, self.model, run_config.jit_compile)
        # Evaluations are often repeated, and making their input is a large part of a short one.
        self._inputs: dict[InputFn, tf.distribute.DistributedDataset] = {}

    def train(self, train_spec: TrainSpec) -> None:
        """Trains up to `train_spec.max_steps`, going on from the newest checkpoint."""
        self.train_and_evaluate(train_spec, None)

    @lost_workers()
    def train_and_evaluate(
        self, train_spec: TrainSpec, eval_spec: EvalSpec | None
    ) -> dict[str, float] | None:
        """Trains, evaluating as `eval_spec` says and keeping the best weights apart.

        A run of the same configuration in the output directory is continued: weights, optimizer
        slots, step and position in the data. SIGTERM and SIGINT, to any worker, end it after the
        current steps with a checkpoint, by SystemExit (exit status 143 or 130).

        Returns:
          The metrics of the last evaluation, None without one.

        Raises:
          AlbertError: the directory holds another run, the data is damaged, or the training has
            diverged and `on_divergence` does not allow to go on.
        """
        return _TrainingRun(self, train_spec, eval_spec).run()

    @lost_workers()
    def evaluate(self, eval_spec: EvalSpec, checkpoint: str | None = None) -> dict[str, float]:
        """Metrics of a checkpoint: by default the output directory's best, or else newest, one."""
        self.check_input(eval_spec.input_fn, self.config.eval_batch_size, eval_spec.files)
        self._load(checkpoint)
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
        """
        self.check_input(input_fn, self.config.eval_batch_size)
        self._load(checkpoint)
        return self._outputs(input_fn, max_steps, "predict")

    @lost_workers()
    def evaluate_now(self, eval_spec: EvalSpec) -> dict[str, float]:
        """Metrics of the weights as they are."""
        outputs = self._outputs(
            eval_spec.input_fn, eval_spec.max_steps, eval_spec.name, eval_spec.data_check
        )
        return (eval_spec.metrics or self.task.metrics)(outputs)

    def check_input(self, input_fn: InputFn, batch_size: int, paths: Sequence[str] = ()) -> None:
        """Raises AlbertError if the devices cannot run on such batches, read from these files."""
        if isinstance(self.strategy, tf.distribute.TPUStrategy):
            batch = input_fn(InputContext(batch_size)).element_spec
            check_tpu_run(self.config, self.strategy.num_replicas_in_sync, batch, paths)

    def _load(self, checkpoint: str | None) -> None:
        highest(self.strategy)  # The chief may still be writing what is to be read.
        if checkpoint is None:
            checkpoint = self.config.output_dir
            if self.config.init_checkpoint and not has_checkpoint(checkpoint):
                checkpoint = self.config.init_checkpoint
        with self.strategy.scope():
            print(load_weights(checkpoint, self.model.named_weights(), whole=True))

    def _outputs(
        self,
        input_fn: InputFn,
        max_steps: int | None,
        label: str,
        data_check: Callable[[], None] | None = None,
    ) -> dict:
        collected: list[dict[str, np.ndarray]] = []
        with _data_errors(data_check), Progress(label, max_steps, "batches") as progress:
            if input_fn not in self._inputs:
                size = self.config.eval_batch_size
                self._inputs[input_fn] = distribute(self.strategy, input_fn, size)
            iterator = iter(self._inputs[input_fn])
            while len(collected) != max_steps:
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


class _TrainingRun:
    """One call of `train_and_evaluate`."""

    def __init__(
        self, estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec | None
    ) -> None:
        from albert_tf.optimization.optimizer import create_optimizer

        self.estimator, self.task, self.config = estimator, estimator.task, estimator.config
        self.train_spec, self.eval_spec = train_spec, eval_spec
        estimator.check_input(train_spec.input_fn, self.config.train_batch_size, train_spec.files)
        if eval_spec:
            size = self.config.eval_batch_size
            estimator.check_input(eval_spec.input_fn, size, eval_spec.files)
        strategy = estimator.strategy
        weights = estimator.model.named_weights()
        self.chief = estimator.chief
        self.rollbacks = Rollbacks(self.config.output_dir, self.chief)
        self.detector = DivergenceDetector(
            self.task.plateaus(),
            batch_size=self.config.train_batch_size,
            num_warmup_steps=self.config.num_warmup_steps,
            start_warmup_step=self.config.start_warmup_step,
            max_steps=train_spec.max_steps,
            clip_norm=self.config.clip_norm,
            max_nonfinite_steps=self.config.max_nonfinite_steps,
        )
        self.memory = DivergenceMemory(self.detector, self.rollbacks)
        with strategy.scope():
            self.rate_factor = tf.Variable(1.0, trainable=False, name="learning_rate_factor")
            schedule = WarmupPolynomialDecay(
                factor=self.rate_factor,
                learning_rate=self.config.learning_rate,
                num_train_steps=train_spec.max_steps,
                num_warmup_steps=self.config.num_warmup_steps,
                poly_power=self.config.poly_power,
                start_warmup_step=self.config.start_warmup_step,
            )
            self.optimizer = create_optimizer(
                self.config.optimizer,
                schedule,
                weights,
                weight_decay_rate=self.config.weight_decay_rate,
                bias_correction=self.config.bias_correction,
            )
            self.skipped = tf.Variable(0, dtype=tf.int64, trainable=False, name="skipped_steps")
        self.store = CheckpointStore(
            self.config.output_dir,
            weights,
            self.optimizer,
            {"skipped_steps": self.skipped, "divergence": self.memory},
            self.config.keep_checkpoint_max,
            self.chief,
        )
        self.loop = TrainLoop(
            strategy, self.task, estimator.model, self.optimizer, schedule, self.config
        )
        self.results: dict[str, float] | None = None

    def run(self) -> dict[str, float] | None:
        if self.chief:
            files.remove_temporary(self.config.output_dir)
        begun = highest(self.estimator.strategy, int(self.store.latest() is not None))
        step = self._resume() if begun else self._begin()
        last = self.train_spec.max_steps
        over = self._no_better(step)
        if step >= last or over:
            print(over or f"{self.config.output_dir} is already trained to step {step}.")
            return None
        if self.chief:
            self.log = MetricsLog(self.config.output_dir, step)
        self.initial_step = step
        self.progress = Progress("train", last, "steps", step)
        window = MetricsWindow(self.config.train_batch_size, self.task.training_flops)
        self.input_watch = InputWatch()
        loop_steps, tokens, positions, over, stop = 1, 0.0, 0.0, False, None
        preemption = PreemptionHandler(self.estimator.strategy, self._note)
        with preemption, _data_errors(self.train_spec.data_check):
            iterator = self._batches(step)
            while not (over or stop):
                steps = min(loop_steps, self._next_stop(step) - step)
                began = time.monotonic()
                metrics = self.loop.run(iterator, steps)
                seconds = time.monotonic() - began
                # The first call also traces and compiles; its speed says nothing.
                window.add(metrics, None if step == self.initial_step else seconds)
                per_step = seconds / steps if step > self.initial_step else LOOP_SECONDS
                loop_steps = max(1, min(self.config.steps_per_loop, int(LOOP_SECONDS / per_step)))
                loop_steps = highest(self.estimator.strategy, loop_steps)
                step += steps
                tokens, positions = (
                    tokens + metrics["tokens"].sum(),
                    positions + metrics["positions"].sum(),
                )
                self._count_skipped(step, metrics["finite"])
                self._report(step, steps, window)
                alarm = self._divergence(step, metrics)
                if alarm:
                    step = self._roll_back(alarm)
                    iterator = self._batches(step)
                    window.clear()
                else:
                    over = self._evaluate_if_due(step)
                # An evaluation takes long, so signals are looked for after it. The checkpoint comes
                # last: whatever it implies has then happened. A rollback leads to one there is.
                stop = preemption.agree()
                due = over or stop or step % self.config.save_checkpoints_steps == 0
                if due and not alarm:
                    self.store.save(step)
            stop = stop or preemption.agree()  # Perhaps while the last checkpoint was written.
        self.progress.close()
        if self.chief:
            self.log.close()
        if stop:
            print(f"Stopped at step {step} and saved; the same command goes on from there.")
            raise SystemExit(exit_status(stop))
        print(f"Of the positions trained on, {1 - tokens / positions:.1%} were padding.")
        return self.results

    def _batches(self, step: int) -> Iterator[tf.distribute.DistributedValues]:
        """The training data from the batch of a step on."""
        strategy, size = self.estimator.strategy, self.config.train_batch_size
        position = step + self.rollbacks.skipped_batches
        return iter(distribute(strategy, self.train_spec.input_fn, size, position))

    def _begin(self) -> int:
        """Starts at step 0, from random or from the initial weights; claims the directory."""
        if self.config.init_checkpoint:
            with self.estimator.strategy.scope():
                weights = self.estimator.model.named_weights()
                print(load_weights(self.config.init_checkpoint, weights))
        else:
            print("Training starts from random weights, as no --init_checkpoint is given.")
        if self.chief:
            self.store.begin()
            self.task.save_files(self.config.output_dir)
            folder = self.config.output_dir
            files.write_json(os.path.join(folder, RUN_CONFIG), self._identity())
            data = dict(self.train_spec.data_description)
            files.write_json(os.path.join(folder, TRAINING_DATA), data)
            self.rollbacks.forget()
        if self.config.on_divergence == ROLLBACK:
            self.store.save(0)
        return 0

    def _resume(self) -> int:
        """Restores the newest checkpoint of this run; gives its step. Refuses those of another."""
        folder = self.config.output_dir
        path = os.path.join(folder, RUN_CONFIG)
        held = files.read_object(path, "run configuration")
        for part in self._identity():
            if not isinstance(held.get(part), dict):
                raise AlbertError(
                    f"The run configuration {path} is damaged: it lacks {part!r}. Put it back, or "
                    "give another --output_dir."
                )
        differing = [
            f"{key}={shown(held[part].get(key))} there, {shown(value)} here"
            for part, values in self._identity().items()
            for key, value in values.items()
            if held[part].get(key) != value
        ]
        if differing:
            raise AlbertError(
                f"{folder} holds another run ({'; '.join(differing[:4])}); give another "
                "--output_dir, or the same settings to resume it."
            )
        with self.estimator.strategy.scope():
            self.store.restore_newest()
        step = int(self.optimizer.iterations.numpy())
        strategy = self.estimator.strategy
        newest, oldest = highest(strategy, step), -highest(strategy, -step)
        if newest != oldest:
            raise AlbertError(
                f"One worker resumes {folder} at step {newest} and another one at step {oldest}, "
                f"this one at {step}; all of them must see the same files in it."
            )
        self.rollbacks.resume(step, self.memory.rollbacks)
        self.rate_factor.assign(self.rollbacks.learning_rate_factor)
        print(f"Resuming {folder} at step {step}.")
        return step

    def _identity(self) -> dict[str, dict[str, object]]:
        """What decides the weights this run ends with, as JSON values."""
        return {
            "run": self.config.decisive(),
            "task": self.task.description(),
            "train": {
                "max_steps": self.train_spec.max_steps,
                "data": self.train_spec.data_fingerprint,
            },
        }

    def _next_stop(self, step: int) -> int:
        """The next step at which the host has something to do."""
        periods = [self.config.log_every_steps, self.config.save_checkpoints_steps]
        if self.eval_spec and self.eval_spec.every_steps:
            periods.append(self.eval_spec.every_steps)
        stops = [(step // period + 1) * period for period in periods]
        return min([*stops, self.train_spec.max_steps])

    def _count_skipped(self, step: int, finite: np.ndarray) -> None:
        bad = int(np.sum(finite == 0))
        if bad:
            self.skipped.assign_add(bad)
            self.progress.note(
                f"step {step}: {bad} step(s) skipped, loss or gradient not finite "
                f"({int(self.skipped.numpy())} in all)"
            )

    def _divergence(self, step: int, metrics: dict[str, np.ndarray]) -> Alarm | None:
        """Warns of divergences; gives one after which the run has to go back.

        Raises:
          AlbertError: the run has to end.
        """
        act = self.config.on_divergence
        for alarm in self.detector.look(step, metrics):
            if act == WARN and alarm.cause != NOT_FINITE:
                if not alarm.repeated:
                    self._note(f"Warning: {alarm.text}. {alarm.advice}")
                continue
            if act == ROLLBACK and self.rollbacks.count < MAX_ROLLBACKS:
                return alarm
            kept = self.store.kept()
            good = kept.get(max((n for n in kept if n <= alarm.onset), default=-1), "none")
            tried = " --on_divergence=rollback goes on from there by itself."
            if act == ROLLBACK:
                tried = f" {self.rollbacks.count} rollbacks did not help."
            raise AlbertError(
                f"Training has diverged: {alarm.text}; the last good checkpoint is "
                f"{good}. {alarm.advice}{tried}"
            )
        return None

    def _roll_back(self, alarm: Alarm) -> int:
        """Goes back to where the run was still good, on with other data; gives the step."""
        target = self._restore_before(alarm)
        highest(self.estimator.strategy)  # Before the chief deletes any, all have looked.
        # Stopped in between, the run comes to the same alarm and the same checkpoint again.
        self.store.forget_after(target)
        self.rollbacks.add(alarm, target)
        step = int(self.optimizer.iterations.numpy())
        self.rate_factor.assign(self.rollbacks.learning_rate_factor)
        self._note(
            f"Diverged: {alarm.text}. Going back to step {step}, passing over "
            f"{self.rollbacks.skipped_batches} batches in all, with the learning rate times "
            f"{self.rollbacks.learning_rate_factor:g} (rollback {self.rollbacks.count} of at most "
            f"{MAX_ROLLBACKS})."
        )
        if self.chief:
            self.log.close()
            self.log = MetricsLog(self.config.output_dir, step)
        self.progress.close()
        self.progress = Progress("train", self.train_spec.max_steps, "steps", step)
        self.initial_step = step  # The input starts anew, and its time says nothing.
        return step

    def _restore_before(self, alarm: Alarm) -> int:
        """Restores the checkpoint to go back to; gives its step."""
        kept = self.store.kept()
        while (target := self.rollbacks.target(alarm, list(kept))) is not None:
            try:
                with self.estimator.strategy.scope():
                    self.store.restore(kept[target])
                return target
            except DamagedError as error:
                self._note(str(error))
                del kept[target]
        raise AlbertError(
            f"Training has diverged: {alarm.text}; there is no checkpoint to go back to. "
            f"{alarm.advice}"
        )

    def _report(self, step: int, steps: int, window: MetricsWindow) -> None:
        means = window.means()
        first, final = step == self.initial_step + 1, step == self.train_spec.max_steps
        # Not the first one after a resumption: the log is that of an uninterrupted run.
        logged = step % self.config.log_every_steps == 0 or step == 1 or final
        rate = f"{means['learning_rate']:.1e}".replace("e-0", "e-")
        text = f"{self.task.progress(means)} lr {rate}"
        if "tokens_per_second" in means:
            text += f" {short_rate(means['tokens_per_second'])} tok/s"
        self.progress.update(steps, text, show=first or final)
        if logged:
            warning = self.input_watch.look(step, means.get("input_wait_share", 0.0))
            if warning:
                self._note(warning)
            if self.chief:
                counts = {
                    "skipped_steps": float(self.skipped.numpy()),
                    "corrupt_records": float(self.train_spec.corrupt_records),
                }
                self.log.write(step, "train", {**means, **counts})
            window.clear()

    def _evaluate_if_due(self, step: int) -> bool:
        """Evaluates where a step is due for it; whether the run is over."""
        last = step == self.train_spec.max_steps
        spec = self.eval_spec
        if spec and (last or (spec.every_steps and step % spec.every_steps == 0)):
            self._evaluate(step)
            over = self._no_better(step)
            if over:
                self._note(over)
                last = True
        return last

    def _no_better(self, step: int) -> str | None:
        """Why the run is over before its last step; None: it is not."""
        patience = self.config.early_stopping_evals
        every = self.eval_spec.every_steps if self.eval_spec else None
        best = self.store.best()
        if not (patience and every and best and step - best.step >= patience * every):
            return None
        return (
            f"Stopped early at step {step}: no better {best.metric} than the {best.value:.4f} of "
            f"step {best.step} in {patience} evaluations."
        )

    def _note(self, text: str) -> None:
        """Prints a few lines above the progress line."""
        self.progress.note("\n  ".join(textwrap.wrap(text, 78, break_on_hyphens=False)))

    def _evaluate(self, step: int) -> None:
        self.results = self.estimator.evaluate_now(self.eval_spec)
        shown = "  ".join(f"{k} {v:.4f}" for k, v in self.results.items())
        self._note(f"{self.eval_spec.name} at step {step}: {shown}")
        if self.chief:
            self.log.write(step, self.eval_spec.name, self.results)
        name = self.task.best_metric
        value = self.results[name]
        best = self.store.best()
        sign = 1 if self.task.best_metric_larger_is_better else -1
        if np.isfinite(value) and (best is None or sign * value > sign * best.value):
            self.store.save_best(step, name, value)


@contextlib.contextmanager
def _precision(name: str) -> Iterator[None]:
    """Sets Keras' mixed-precision policy while a model is built."""
    former = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(former)


@contextlib.contextmanager
def _data_errors(data_check: Callable[[], None] | None) -> Iterator[None]:
    """Turns TensorFlow's words on damaged input into a sentence that says where it is."""
    try:
        yield
    # A record that is no example may be quoted in TensorFlow's message, which then is not UTF-8.
    except (
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        tf.errors.InvalidArgumentError,
        UnicodeDecodeError,
    ) as e:
        if data_check:
            data_check()
        if not isinstance(e, (tf.errors.DataLossError, tf.errors.NotFoundError)):
            raise  # Not of the data.
        raise AlbertError(
            f"The input records are damaged or gone ({first_line(e)}); "
            "data_prep/verify_records.py names the shard."
        ) from e
