# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Does the jobs of a plan and saves their results, which the tests compare.

  python tests/distributed/worker.py plan.json

The process runs alone or in a cluster, according to the plan's strategy and TF_CONFIG.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time
import unittest.mock
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import RunConfig, TrainSpec
from albert_tf.training import run as training_run
from albert_tf.training.cluster import join_cluster
from albert_tf.training.estimator import Estimator
from albert_tf.training.loop import TrainLoop, distribute
from tests.support.builders import tiny_config
from tests.support.small_tasks import PIECES, SmallTask, open_small_task

#: Length of the longest sequences; there are two lengths that batches are padded to.
LENGTH = 32
MODEL = tiny_config(len(PIECES), initializer_range=0.2, max_position_embeddings=LENGTH)


@dataclasses.dataclass(frozen=True)
class Job:
    """Something to do with a task; see open_small_task about `task` and `examples`."""

    name: str  # Of the run's folder, too.
    task: str
    examples: int = 16
    steps: int = 0  # To train; 0: do not train.
    batches_from: tuple[int, ...] = ()  # Look at `steps` batches from there on, without training.
    eval_sizes: tuple[int, ...] = ()  # Batch sizes to predict all examples with.
    checkpoint: str | None = None  # Folder of the weights to predict with; None: the run's own.
    config: dict[str, Any] = dataclasses.field(default_factory=dict)


def train(task: SmallTask, config: RunConfig, steps: int) -> dict[str, np.ndarray]:
    """Returns the loss and gradient norm of every step, [steps] each, and the final weights."""
    seen: list[dict[str, np.ndarray]] = []
    run = TrainLoop.run

    def watched(loop: TrainLoop, *args: object) -> dict[str, np.ndarray]:
        seen.append(run(loop, *args))
        return seen[-1]

    estimator = Estimator(task.task, config)
    with unittest.mock.patch.object(TrainLoop, "run", watched):
        estimator.train_and_evaluate(TrainSpec.of(task.train, steps))
    return {
        "replicas": np.array(estimator.strategy.num_replicas_in_sync),
        **{k: np.concatenate([one[k] for one in seen]) for k in ("loss", "gradient_norm")},
        **{f"weight {k}": v.numpy() for k, v in estimator.model.named_weights().items()},
    }


def predict(
    task: SmallTask, config: RunConfig, size: int, checkpoint: str | None
) -> dict[str, np.ndarray]:
    """Returns the outputs for every example, [examples, ...], and their metrics."""
    estimator = Estimator(task.task, dataclasses.replace(config, eval_batch_size=size))
    outputs = estimator.predict(task.held_out.input_fn, checkpoint)
    metrics = task.task.metrics(outputs, task.held_out.examples)
    evaluated = estimator.evaluate(task.held_out, checkpoint)
    assert evaluated == metrics
    return {
        **{f"output {size} {k}": v for k, v in outputs.items()},
        **{f"metric {size} {k}": np.array(v) for k, v in metrics.items()},
    }


def batches(task: SmallTask, config: RunConfig, start: int, steps: int) -> dict[str, np.ndarray]:
    """Returns a digest of each row that this process trains on, string [steps, rows]."""
    strategy = Estimator(task.task, config).strategy
    size = config.train_batch_size
    iterator = iter(distribute(strategy, task.train.train_input_fn, size, start))
    digests = []
    for _ in range(steps):
        batch = next(iterator)
        columns = {k: strategy.experimental_local_results(v) for k, v in sorted(batch.items())}
        rows = [
            b"".join(np.ascontiguousarray(row).tobytes() for row in parts)
            for replica in zip(*columns.values())
            for parts in zip(*(value.numpy() for value in replica))
        ]
        digests.append([hashlib.sha256(row).hexdigest() for row in rows])
    return {f"batches {start}": np.array(digests)}


def do(job: Job, folder: Path, data: Path, strategy: str) -> dict[str, np.ndarray]:
    """Does a job and returns its results by name."""
    config = RunConfig(
        **{
            "output_dir": str(folder / job.name),
            "strategy": strategy,
            "train_batch_size": 16,
            "learning_rate": 0.01,
            "num_warmup_steps": 2,
            "save_checkpoints_steps": 3,
            "log_every_steps": 1,
            **job.config,
        }
    )
    options = {"examples": job.examples, "max_seq_length": LENGTH, "dropout_rate": 0.0}
    task = open_small_task(job.task, MODEL, data, **options)
    results = train(task, config, job.steps) if job.steps and not job.batches_from else {}
    for start in job.batches_from:
        results.update(batches(task, config, start, job.steps))
    for size in job.eval_sizes:
        results.update(predict(task, config, size, job.checkpoint))
    return results


def do_all(plan: dict[str, Any], index: int = 0) -> None:
    """Does the jobs of a plan; `index` is that of this process."""
    folder = Path(plan["folder"])
    for values in plan["jobs"]:
        job = Job(**values)
        began = time.monotonic()
        results = do(job, folder, Path(plan["data"]), plan["strategy"])
        np.savez(folder / f"{job.name}-{index}.npz", **results)
        print(f"{job.name}: {time.monotonic() - began:.1f} s")


def main() -> None:
    """Does the plan named on the command line."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    index = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
    # The clocks of the workers disagree.
    training_run.LOOP_SECONDS /= 1 + index * plan["clock_skew"]
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * plan["devices"]
    tf.config.set_logical_device_configuration(cpu, devices)
    if plan["strategy"] == "multi_worker":
        join_cluster()
    do_all(plan, index)


if __name__ == "__main__":
    main()
