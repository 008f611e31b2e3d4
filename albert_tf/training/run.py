# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""One training: begun or resumed, with its checkpoints, evaluations, guards and logs."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, DivergedError
from albert_tf.io import files
from albert_tf.io.interrupts import exit_status
from albert_tf.io.progress import Progress
from albert_tf.modeling.flops import PASSES
from albert_tf.optimization.schedule import WarmupPolynomialDecay
from albert_tf.training.checkpoints import CheckpointStore, load_weights
from albert_tf.training.data_errors import data_errors
from albert_tf.training.divergence import NOT_FINITE, Alarm, DivergenceDetector
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.loop import TrainLoop, distribute
from albert_tf.training.monitors import (
    InputWatch,
    MetricsLog,
    MetricsWindow,
    is_logged,
    short_rate,
)
from albert_tf.training.preemption import PreemptionHandler
from albert_tf.training.rollback import MAX_ROLLBACKS, DivergenceMemory, Rollbacks
from albert_tf.training.run_identity import RunIdentity, version_note
from albert_tf.training.specs import ROLLBACK, WARN, EvalSpec, TrainSpec
from albert_tf.training.strategy import fast_precision, highest
from albert_tf.training.task import trainable_weights
from albert_tf.weights.source import ENCODER_SCOPE, LoadReport

#: Seconds a loop on the device may take, so that the host keeps talking.
LOOP_SECONDS = 5.0


class TrainingRun:
    """One call of `Estimator.train_and_evaluate`.

    Args:
      evaluator: has the model to train, on its devices.
      train_spec: what on, and how long.
      eval_spec: what to evaluate on in between; None: nothing.

    Raises:
      AlbertError: the devices cannot run on such batches.
    """

    def __init__(
        self, evaluator: Evaluator, train_spec: TrainSpec, eval_spec: EvalSpec | None
    ) -> None:
        from albert_tf.optimization.optimizer import create_optimizer

        self.evaluator, self.task, self.config = evaluator, evaluator.task, evaluator.config
        self.train_spec, self.eval_spec = train_spec, eval_spec
        if self.config.early_stopping_evals and not (eval_spec and eval_spec.every_steps):
            raise AlbertError("--early_stopping_evals needs --do_eval and --eval_every_steps.")
        evaluator.check_input(train_spec.input_fn, self.config.train_batch_size)
        if eval_spec:
            evaluator.check_input(eval_spec.input_fn, self.config.eval_batch_size)
        strategy = evaluator.strategy
        weights = evaluator.model.named_weights()
        trained = trainable_weights(evaluator.model)
        self.frozen = [name for name in weights if name not in trained]
        self.identity = RunIdentity(self.config, self.task, train_spec, self.frozen)
        self.chief = evaluator.chief
        self.rollbacks = Rollbacks(self.config.output_dir, self.chief)
        self.detector = DivergenceDetector(
            self.task.plateaus(train_spec.data_description),
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
                trained,
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
            strategy, self.task, evaluator.model, self.optimizer, schedule, self.config
        )
        self.results: dict[str, float] | None = None

    def run(self) -> dict[str, float] | None:
        """Trains to the end; gives the metrics of the last evaluation, None without one.

        Raises:
          AlbertError: see `Estimator.train_and_evaluate`.
          SystemExit: a signal has stopped the run, which has saved.
        """
        if self.chief:
            files.remove_temporary(self.config.output_dir)
            if note := self.config.warmup_note(self.train_spec.max_steps):
                print(note)
        begun = highest(self.evaluator.strategy, int(self.store.latest() is not None))
        step = self._resume() if begun else self._begin()
        last = self.train_spec.max_steps
        pending = self._evaluation_pending(step)
        over = self._no_better(step)
        if not pending and (step >= last or over):
            print(over or f"{self.config.output_dir} is already trained to step {step}.")
            return None
        if self.chief:
            self.log = MetricsLog(self.config.output_dir, step)
            if not step and self.train_spec.data_description:
                self.log.describe("training_data", self.train_spec.data_description)
        self.initial_step = step
        self.progress = Progress("train", last, "steps", step)
        self.preemption = PreemptionHandler(self.evaluator.strategy, self._note)
        with self.preemption:
            over = self._evaluate(step) if pending else False
            stop = self.preemption.agree()
            if not (over or stop):
                step, stop = self._train(step)
            stop = stop or self.preemption.agree()  # Perhaps while the last checkpoint was written.
        self.progress.close()
        if self.chief:
            self.log.close()
        if stop:
            print(f"Stopped at step {step} and saved; the same command goes on from there.")
            raise SystemExit(exit_status(stop))
        return self.results

    def _flops(self, length: float) -> float:
        """Operations of training on one example; of the forward pass if the encoder is frozen."""
        flops = self.task.training_flops(length)
        names = self.optimizer.named_weights
        return flops if any(name.startswith(ENCODER_SCOPE) for name in names) else flops / PASSES

    def _train(self, step: int) -> tuple[int, int | None]:
        """Trains from a step on until the run is over or stopped; gives the step and the signal."""
        window = MetricsWindow(self.config.train_batch_size, self._flops)
        self.input_watch = InputWatch()
        loop_steps, tokens, positions, over, stop = 1, 0.0, 0.0, False, None
        iterator = self._batches(step)
        while not (over or stop):
            steps = min(loop_steps, self._next_stop(step) - step)
            began = time.monotonic()
            with data_errors(self.train_spec.input_fn):
                metrics = self.loop.run(iterator, steps)
            seconds = time.monotonic() - began
            # The first call also traces and compiles; its speed says nothing.
            window.add(metrics, None if step == self.initial_step else seconds)
            per_step = seconds / steps if step > self.initial_step else LOOP_SECONDS
            loop_steps = max(1, min(self.config.steps_per_loop, int(LOOP_SECONDS / per_step)))
            loop_steps = highest(self.evaluator.strategy, loop_steps)
            step += steps
            tokens, positions = (
                tokens + metrics["tokens"].sum(),
                positions + metrics["positions"].sum(),
            )
            self._count_skipped(step, metrics["finite"])
            self._report(step, steps, window)
            alarm = self._divergence(step, metrics)
            if alarm:
                step = self._roll_back(alarm)  # To a checkpoint, so that nothing is to be saved.
                iterator = self._batches(step)
                window.clear()
                stop = self.preemption.agree()
            else:
                over, stop = self._save_and_evaluate(step)
        if not stop:
            print(f"Of the positions trained on, {1 - tokens / positions:.1%} were padding.")
        return step, stop

    def _save_and_evaluate(self, step: int) -> tuple[bool, int | None]:
        """Saves and evaluates where it is time; gives whether the run is over, and the signal.

        A checkpoint says nothing of an evaluation at its step; the log does, see
        `_evaluation_pending`. So the checkpoint comes first, as the evaluation may take long.
        """
        over, stop = step == self.train_spec.max_steps, self.preemption.agree()
        saved = over or stop or step % self.config.save_checkpoints_steps == 0
        if saved:
            self.store.save(step)
        if self._evaluation_due(step) and not stop:
            over = self._evaluate(step)
            stop = self.preemption.agree()
            if (over or stop) and not saved:
                self.store.save(step)
        return over, stop

    def _note_slow_precision(self) -> None:
        """Says so where bfloat16 would be computed without units for it."""
        fast = fast_precision(self.evaluator.strategy)
        if self.config.precision == "mixed_bfloat16" and fast != "mixed_bfloat16":
            print(
                "No bfloat16 units found here: steps may take several times as long as with "
                f"--precision={fast} (auto would choose that)."
            )

    def _batches(self, step: int) -> Iterator[tf.distribute.DistributedValues]:
        """The training data from the batch of a step on."""
        strategy, size = self.evaluator.strategy, self.config.train_batch_size
        position = step + self.rollbacks.skipped_batches
        return iter(distribute(strategy, self.train_spec.input_fn, size, position))

    def _begin(self) -> int:
        """Starts at step 0, from random or from the initial weights; claims the directory."""
        if self.config.init_checkpoint:
            with self.evaluator.strategy.scope():
                weights = self.evaluator.model.named_weights()
                report = load_weights(self.config.init_checkpoint, weights)
            print(report)
            self._warn_of_frozen_at_random(report)
        else:
            print("Training starts from random weights, not from an --init_checkpoint.")
        if self.chief:
            self._note_slow_precision()
            self.store.begin()
            self.task.save_files(self.config.output_dir)
            self.identity.write(self.config.output_dir)
            self.rollbacks.forget()
        if self.config.on_divergence == ROLLBACK:
            self.store.save(0)
        return 0

    def _warn_of_frozen_at_random(self, report: LoadReport) -> None:
        lacking = [name for name in report.missing if name.split(" ")[0] in self.frozen]
        if lacking:
            print(
                "Warning: these weights are frozen, but the checkpoint lacks them, so they stay "
                f"random: {', '.join(lacking)}."
            )

    def _resume(self) -> int:
        """Restores the newest checkpoint of this run; gives its step. Refuses those of another."""
        folder = self.config.output_dir
        self.identity.check(folder)
        with self.evaluator.strategy.scope():
            self.store.restore_newest()
        step = int(self.optimizer.iterations.numpy())
        strategy = self.evaluator.strategy
        newest, oldest = highest(strategy, step), -highest(strategy, -step)
        if newest != oldest:
            raise AlbertError(
                f"One worker resumes {folder} at step {newest} and another one at step {oldest}, "
                f"this one at {step}; all of them must see the same files in it."
            )
        self.rollbacks.resume(step, self.memory.rollbacks)
        self.rate_factor.assign(self.rollbacks.learning_rate_factor)
        print(f"Resuming {folder} at step {step}.")
        if note := version_note(folder):
            print(note)
        if self.memory.begun_anew:
            names = ", ".join(self.memory.begun_anew)
            print(
                f"The checkpoint has no history of {names}, as another version wrote it; the "
                "detection of divergences starts afresh for these."
            )
        return step

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
          DivergedError: the run has to end.
        """
        act = self.config.on_divergence
        for alarm in self.detector.update(step, metrics):
            if act == WARN and alarm.cause != NOT_FINITE:
                if not alarm.repeated:
                    self._note(f"Warning: {alarm.text}. {alarm.advice}")
                continue
            if act == ROLLBACK and self.rollbacks.count < MAX_ROLLBACKS:
                return alarm
            kept = self.store.kept()
            good = max((n for n in kept if n <= alarm.onset), default=None)
            where = (
                "there is no checkpoint from before"
                if good is None
                else f"the last good checkpoint is {kept[good]}"
            )
            tried = " --on_divergence=rollback goes back to a good checkpoint by itself."
            if act == ROLLBACK:
                tried = f" {self.rollbacks.count} rollbacks did not help."
            raise DivergedError(
                f"Training has diverged: {alarm.text}; {where}. {alarm.advice}{tried}"
            )
        return None

    def _roll_back(self, alarm: Alarm) -> int:
        """Goes back to where the run was still good, on with other data; gives the step."""
        target = self._restore_before(alarm)
        highest(self.evaluator.strategy)  # Before the chief deletes any, all have looked.
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
                with self.evaluator.strategy.scope():
                    self.store.restore(kept[target])
                return target
            except DamagedError as error:
                self._note(str(error))
                del kept[target]
        raise DivergedError(
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
            warning = self.input_watch.update(step, means.get("input_wait_share", 0.0))
            if warning:
                self._note(warning)
            if self.chief:
                counts = {
                    "skipped_steps": float(self.skipped.numpy()),
                    "corrupt_records": float(self.train_spec.corrupt_records),
                }
                self.log.write(step, "train", {**means, **counts})
            window.clear()

    def _evaluation_due(self, step: int) -> bool:
        """Whether the run evaluates at a step."""
        spec = self.eval_spec
        if not (spec and step):
            return False
        last = step == self.train_spec.max_steps
        return last or bool(spec.every_steps and step % spec.every_steps == 0)

    def _evaluation_pending(self, step: int) -> bool:
        """Whether the run that is resumed at a step ended before the evaluation at it did.

        An evaluation has happened once it is in the log, which is written after the best weights.
        """
        pending = (
            self.chief
            and self._evaluation_due(step)
            and not is_logged(self.config.output_dir, step, self.eval_spec.name)
        )
        return bool(highest(self.evaluator.strategy, int(pending)))

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

    def _evaluate(self, step: int) -> bool:
        """Evaluates, unless a signal comes in between; whether the run is over."""
        results = self.evaluator.evaluate_now(self.eval_spec, self.preemption.agree)
        if results is None:
            return False
        self.results = results
        shown = "  ".join(f"{k} {v:.4f}" for k, v in results.items())
        self._note(f"{self.eval_spec.name} at step {step}: {shown}")
        name = self.task.best_metric
        value = results[name]
        best = self.store.best()
        sign = 1 if self.task.best_metric_larger_is_better else -1
        if np.isfinite(value) and (best is None or sign * value > sign * best.value):
            self.store.save_best(step, name, value)
        if self.chief:
            self.log.write(step, self.eval_spec.name, results)  # Last, see _evaluation_pending.
        over = self._no_better(step)
        if over:
            self._note(over)
        return bool(over) or step == self.train_spec.max_steps
