# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The Estimator: trains, evaluates and predicts."""

from __future__ import annotations

from albert_tf.training.evaluator import Evaluator
from albert_tf.training.output_lock import output_lock
from albert_tf.training.preemption import lost_workers
from albert_tf.training.run import TrainingRun
from albert_tf.training.specs import EvalSpec, TrainSpec


class Estimator(Evaluator):
    """Trains, evaluates and predicts with the model of one task.

    Example:
      estimator = Estimator(task, RunConfig(output_dir="runs/mine", train_batch_size=64))
      estimator.train_and_evaluate(TrainSpec.of(source, max_steps=1000),
                                   EvalSpec(held_out.eval_input_fn, every_steps=100))
    """

    def train(self, train_spec: TrainSpec) -> None:
        """Trains up to `train_spec.max_steps`, resuming from the newest checkpoint."""
        self.train_and_evaluate(train_spec, None)

    @lost_workers()
    def train_and_evaluate(
        self, train_spec: TrainSpec, eval_spec: EvalSpec | None
    ) -> dict[str, float] | None:
        """Trains, evaluates as `eval_spec` says, and keeps the best weights separately.

        Resumes a run of the same configuration in the output directory: weights, optimizer slots,
        step and position in the data. A signal to any worker ends the run with a checkpoint after
        the current steps: Ctrl-C by KeyboardInterrupt; SIGTERM, SIGHUP and SIGUSR1 by SystemExit
        with the exit status 143, 129 or 138. A second Ctrl-C raises KeyboardInterrupt at once.

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
