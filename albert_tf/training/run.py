# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""One training run, new or resumed, with its checkpoints and evaluations."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.data.context import data_errors
from albert_tf.errors import AlbertError
from albert_tf.io import removal
from albert_tf.io.log import log
from albert_tf.io.signals import StopSignals, stop_exception
from albert_tf.optimization.optimizer import AlbertOptimizer, learning_rate_at
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.cluster import check_same_everywhere, cluster_max
from albert_tf.training.divergence import DivergenceCheck
from albert_tf.training.loop import TrainLoop, distribute
from albert_tf.training.monitors import RunMonitor, logged_metrics
from albert_tf.training.run_identity import is_in, run_record
from albert_tf.training.specs import EvalSpec, TrainSpec
from albert_tf.training.task import Metrics
from albert_tf.weights.run_folder import BEST, CHECKPOINTS, IDENTITY, BestRecord

if TYPE_CHECKING:
    from albert_tf.training.estimator import Estimator

#: Seconds that one call of the loop may take, so that progress shows and signals are answered.
LOOP_SECONDS = 5.0
#: The loss that makes equal scores better, as a share of the best one's. Rounding, which the number
#: of processes changes, must not decide.
_LOWER_LOSS = 0.99


class _SavedState(tf.train.experimental.PythonState):
    """The state of a DivergenceCheck, which needs no TensorFlow, as a part of checkpoints."""

    def __init__(self, check: DivergenceCheck) -> None:
        super().__init__()
        self._check = check

    def serialize(self) -> str:
        return json.dumps(self._check.state)

    def deserialize(self, serialized: str) -> None:
        self._check.state = json.loads(serialized)


class TrainingRun:
    """One call of `Estimator.train_and_evaluate`; has its arguments.

    Raises:
      AlbertError: the devices cannot run on these batches, early stopping has no evaluations, or
        no step trains all layers.
    """

    def __init__(
        self, estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec | None
    ) -> None:
        self.estimator, self.task, self.folder = estimator, estimator.task, estimator.folder
        self.train_spec, self.eval_spec = train_spec, eval_spec
        self.strategy, self.chief = estimator.strategy, estimator.chief
        self.config = config = estimator.config
        if config.early_stopping_evals and not (eval_spec and eval_spec.every_steps):
            raise AlbertError(
                "`early_stopping_evals` needs evaluations during training; set `eval_every_steps`."
            )
        if config.num_shallow_steps >= train_spec.max_steps:
            raise AlbertError(
                f"`num_shallow_steps`={config.num_shallow_steps:,} must be less than the "
                f"{train_spec.max_steps:,} steps of the run: the last ones train all layers."
            )
        estimator.check_input(train_spec.input_fn, training=True)
        if eval_spec:
            estimator.check_input(eval_spec.input_fn)
        self.weights = estimator.model.named_weights()
        frozen = {variable.ref() for variable in estimator.model.non_trainable_weights}
        trained = {name: v for name, v in self.weights.items() if v.ref() not in frozen}
        self.frozen = [name for name in self.weights if name not in trained]
        self.record = run_record(config, self.task, train_spec, self.frozen)
        self.divergence = DivergenceCheck(config, train_spec.max_steps, self.folder.checkpoints)
        with self.strategy.scope():
            self.optimizer = AlbertOptimizer(
                config.optimizer,
                functools.partial(
                    learning_rate_at,
                    learning_rate=config.learning_rate,
                    num_train_steps=train_spec.max_steps,
                    num_warmup_steps=config.num_warmup_steps,
                ),
                trained,
            )
        self.loop = TrainLoop(self.strategy, self.task, estimator.model, self.optimizer, config)
        state = {"optimizer": self.optimizer.state, "divergence": _SavedState(self.divergence)}
        if self.loop.loss_scale:
            state["loss_scale"] = self.loop.loss_scale
        self.store = CheckpointStore(
            self.folder, self.weights, state, config.keep_checkpoint_max, self.chief
        )
        self.results = None
        self.stop = 0

    def run(self) -> Metrics | None:
        """Trains to the end; see `Estimator.train_and_evaluate`."""
        known = is_in(self.folder, self.record)
        resumes = bool(cluster_max(self.strategy, known and self.folder.has_saved()))
        with contextlib.ExitStack() as stack:
            if self.chief:  # All processes have looked before it changes anything.
                made_in = (self.folder.file(part) for part in ("", CHECKPOINTS, BEST))
                owner = removal.owner_id("run", *(self.record[part] for part in IDENTITY))
                stack.enter_context(removal.own_temporaries(owner, *made_in))
                end, last = self.config.num_warmup_steps, self.train_spec.max_steps
                if end >= last:
                    log.info(
                        f"Warning: the warm-up ends at step {end:,}, but training ends at step "
                        f"{last:,}: shorten the warm-up, or train for more steps."
                    )
            return self._run(self._resume() if resumes else self._begin(known))

    def _run(self, step: int) -> Metrics | None:
        pending = self._evaluation_pending(step)
        stopped_early = self._stopped_early(step)
        if not pending and (step >= self.train_spec.max_steps or stopped_early):
            log.info(stopped_early or f"{self.folder} is already trained to step {step}.")
            if self.eval_spec:
                outputs = self.estimator.outputs(self.eval_spec)
                return self.estimator.metrics(self.eval_spec, outputs)
            return None
        self.monitor = self.new_monitor(step)
        with StopSignals() as self.signals:
            over = pending and self._evaluate(step)
            if not (over or self._stopped()):
                step = self._train(step)
            self._stopped()  # A signal may have come while the last checkpoint was written.
        self.monitor.close()
        if self.stop:
            log.info(f"Stopped at step {step} and saved; the same command goes on from there.")
            raise stop_exception(self.stop)
        return self.results

    def new_monitor(self, step: int) -> RunMonitor:
        """Returns the monitor of the run, from a step on."""
        folder = self.folder if self.chief else None
        return RunMonitor(self.task, self.config, self.train_spec.max_steps, step, folder)

    def _stopped(self) -> bool:
        """Returns whether a worker has received a signal, which then is in `stop`.

        All workers ask after the same step and get the same answer, as they save together.
        """
        if not self.stop:
            self.stop = cluster_max(self.strategy, self.signals.received or 0)
            if self.stop:
                name = signal.Signals(self.stop).name
                self.monitor.note(f"{name}: saving; a second signal ends the run without saving.")
        return self.stop > 0

    def _begin(self, known: bool) -> int:
        """Starts at step 0, from random or from the initial weights; claims the directory.

        It may be `known` to hold this run, which then has no checkpoint yet.
        """
        if self.config.init_checkpoint:
            with self.strategy.scope():
                report = self.task.load_initial(self.config.init_checkpoint, self.weights)
            log.info(report)
            lacking = [name for name in report.missing if name.split(" ")[0] in self.frozen]
            if lacking:
                log.info(
                    "Warning: these weights are frozen, but the checkpoint lacks them, so they "
                    f"stay random: {', '.join(lacking)}."
                )
        else:
            log.info("Training starts from random weights, not from a checkpoint.")
        if self.chief:
            self.folder.claim(self.record, self.task.save_files)
        if known:
            self._restore_best(0)
        return 0

    def _resume(self) -> int:
        """Restores the newest good checkpoint and returns its step."""
        with self.strategy.scope():
            damaged = self.store.restore_newest()
        step = int(self.optimizer.iterations.numpy())
        check_same_everywhere(
            self.strategy, step, f"the step of the newest checkpoint in {self.folder}"
        )
        self.store.set_aside(damaged)  # All processes have read them.
        self._restore_best(step)
        self.store.tidy()
        log.info(f"Resuming {self.folder} at step {step}.")
        return step

    def _restore_best(self, step: int) -> None:
        """Raises AlbertError if best weights would be used instead of those still to be trained."""
        self.store.restore_best()
        best = self.store.best
        if best and self.eval_spec is None and step < self.train_spec.max_steps:
            raise AlbertError(
                f"{self.folder} has best weights, of step {best.step}, which would be used instead "
                "of those of the steps that follow; evaluate during training again (`do_eval`), or "
                f"move {self.folder.file(BEST)} away."
            )

    def _train(self, step: int) -> int:
        """Trains until the run is over or stopped; returns the step."""
        loop_steps, over, first, batches = 1, False, step, self.batches(step)
        while not (over or self.stop):
            layers = self.config.shallow_layers if step < self.config.num_shallow_steps else None
            if all_join := 0 < step == self.config.num_shallow_steps:
                self.monitor.note(f"From step {step + 1:,} on, all layers are trained.")
            if traces := all_join or step == first:
                loop_steps = 1
            steps = min(loop_steps, self._next_event(step) - step)
            began = time.monotonic()
            with data_errors(self.train_spec.input_fn):
                metrics = self.loop.run(batches, steps, layers)
            seconds = time.monotonic() - began
            # A call that also traces and compiles says nothing about the time of the next one.
            loop_steps = 1 if traces else max(1, int(LOOP_SECONDS * steps / seconds))
            loop_steps = cluster_max(self.strategy, loop_steps)
            step += steps
            self.divergence.state["skipped"] += int(np.sum(metrics["finite"] == 0))
            skipped = self.divergence.state["skipped"]
            self.monitor.trained(step, metrics, None if traces else seconds, skipped)
            if warning := self.divergence.check(step, metrics):
                self.monitor.note(warning)
            over = self._save_and_evaluate(step)
        return step

    def batches(self, step: int) -> Iterator[Any]:
        """Returns the training data, beginning with the batch of a step."""
        size = self.config.train_batch_size
        return iter(distribute(self.strategy, self.train_spec.input_fn, size, step))

    def _next_event(self, step: int) -> int:
        """The next step at which the host has to log, save, evaluate or change the layers."""
        periods = [self.config.log_every_steps, self.config.save_checkpoints_steps]
        if self.eval_spec and self.eval_spec.every_steps:
            periods.append(self.eval_spec.every_steps)
        events = [(step // period + 1) * period for period in periods]
        if step < self.config.num_shallow_steps:
            events.append(self.config.num_shallow_steps)
        return min([*events, self.train_spec.max_steps])

    def _save_and_evaluate(self, step: int) -> bool:
        """Saves and evaluates if due; returns whether the run is over.

        The checkpoint comes first, as the evaluation may take long. So it does not show whether the
        evaluation was finished; the log does, see `_evaluation_pending`.
        """
        over, stop = step == self.train_spec.max_steps, self._stopped()
        saved = over or stop or step % self.config.save_checkpoints_steps == 0
        if saved:
            self.store.save(step)
        if self._evaluation_due(step) and not stop:
            over = self._evaluate(step)
            if (over or self._stopped()) and not saved:
                self.store.save(step)
        return over

    def _evaluation_due(self, step: int) -> bool:
        spec = self.eval_spec
        if not (spec and step):
            return False
        last = step == self.train_spec.max_steps
        return last or bool(spec.every_steps and step % spec.every_steps == 0)

    def _evaluation_pending(self, step: int) -> bool:
        """Whether the run that is resumed at a step ended before the evaluation at that step did.

        An evaluation is finished once it is in the log, which is written after the best weights.
        """
        pending = (
            self.chief
            and self._evaluation_due(step)
            and step not in logged_metrics(self.folder, self.eval_spec.name)
        )
        return bool(cluster_max(self.strategy, pending))

    def _evaluate(self, step: int) -> bool:
        """Evaluates, unless a signal interrupts it; returns whether the run is over."""
        outputs = self.estimator.outputs(self.eval_spec, self._stopped)
        if outputs is None:
            return False
        self.results = results = self.estimator.metrics(self.eval_spec, outputs)
        shown = "  ".join(f"{k} {v:.4f}" for k, v in results.items())
        self.monitor.note(f"{self.eval_spec.name} at step {step}: {shown}")
        if note := self.task.constant_answer_note(results):
            self.monitor.note(note)
        if step > self.config.num_shallow_steps:  # Before, not all layers are trained.
            self._compare_with_best(step, results)
        self.monitor.log(step, self.eval_spec.name, results)  # Last: see _evaluation_pending.
        if stopped_early := self._stopped_early(step):
            self.monitor.note(stopped_early)
        return bool(stopped_early) or step == self.train_spec.max_steps

    def _compare_with_best(self, step: int, results: Metrics) -> None:
        """Saves the weights if the metric is the best so far, or equal at a clearly lower loss."""
        best, metric = self.store.best, self.task.best_metric
        sign = 1 if self.task.best_metric_larger_is_better else -1
        if best and not best.is_of(self.eval_spec.fingerprint):
            self.monitor.note(f"The best weights, of step {best.step}, were found on other data.")
            best = None
        value, loss = results[metric], results.get("loss", np.nan)
        better = best is None or sign * value > sign * best.value
        if not better and value == best.value and best.loss is not None:
            better = loss < _LOWER_LOSS * best.loss
        if np.isfinite(value) and better:
            loss = loss if np.isfinite(loss) else None
            data = self.eval_spec.fingerprint
            self.store.save_best(BestRecord(step, metric, value, f"ckpt-{step}", data, loss))

    def _stopped_early(self, step: int) -> str | None:
        """Returns why the run is over before its last step; None if it is not."""
        patience, best, count = self.config.early_stopping_evals, self.store.best, 0
        if not (patience and best):
            return None
        if self.chief and best.is_of(self.eval_spec.fingerprint):
            logged = logged_metrics(self.folder, self.eval_spec.name)
            count = sum(best.step < other <= step for other in logged)
        if cluster_max(self.strategy, count) < patience:
            return None
        return (
            f"Stopped early at step {step}: no better {best.metric} than the {best.value:.4f} of "
            f"step {best.step} in {patience} evaluations."
        )
