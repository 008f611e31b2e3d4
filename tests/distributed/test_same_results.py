# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Several devices, or several processes, compute the results of one device.

See worker.py. One and two devices belong to this process; four devices, and two processes, need
other processes, which do all jobs of a test in one start.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.cluster import Cluster
from tests.distributed.worker import Job, do_all
from tests.support.small_tasks import FINE_TUNING, PRETRAINING

#: Strategy, logical devices of a process, processes.
SETUPS = {
    "one device": ("default", 1, 1),
    "two devices": ("mirrored", 2, 1),
    "four devices": ("mirrored", 4, 1),
    "two processes": ("multi_worker", 1, 2),
}
ALONE = next(iter(SETUPS))
TWO_PROCESSES = "two processes"
TASKS = (*PRETRAINING, *FINE_TUNING)
STEPS = 6
#: The step that runs are resumed at.
RESUMED = 3
#: Below the gradient norms of all steps of all tasks, so that every step is clipped.
CLIP_NORM = 0.001
#: A batch that holds all evaluation examples.
ALL = 128
#: Numbers of evaluation examples, and batch sizes that they do and do not fill. With one example in
#: the last batch of four, three of four devices get only padding.
COUNTS = {21: (4, 8), 24: (8, 24)}
#: Float32 sums over a batch depend on the order of addition: relative 6e-8 for each addition, so
#: about 1e-6 for a loss and a gradient. Each update divides by the moving average of the gradient's
#: size, so where a gradient is nearly zero, weights may differ by a like part of the learning rate.
LOSS, NORM, WEIGHT, OUTPUT = 1e-5, 1e-4, 1e-4, 1e-5


def training(task: str, micro_batches: int = 1, name: str = "", **config: object) -> Job:
    config = {
        "clip_norm": CLIP_NORM,
        "gradient_accumulation_steps": micro_batches,
        "optimizer": "lamb" if task in PRETRAINING else "adamw",
        **config,
    }
    name = name or f"{task} x{micro_batches}"
    return Job(name, task, steps=STEPS, examples=40, config=config)


def looking(task: str) -> Job:
    """Looks at the batches from the first step on, and from a later one on."""
    return Job(f"{task} batches", task, steps=4, examples=40, batches_from=(0, RESUMED))


def counting(task: str, examples: int, sizes: Sequence[int], runs: Runs) -> Job:
    """Predicts with the weights trained on one device."""
    checkpoint = str(runs.folder / ALONE / training(task).name)
    name = f"{task} {examples} in {sizes}"
    return Job(name, task, examples, eval_sizes=tuple(sizes), checkpoint=checkpoint)


class Runs:
    """The results of the jobs of each setup; does each job once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._results: dict[tuple[str, str], list[dict[str, np.ndarray]]] = {}

    def do(self, setup: str, jobs: Sequence[Job], clock_skew: float = 0.0) -> None:
        """Does the jobs that are not done yet, in one start."""
        jobs = [job for job in jobs if (setup, job.name) not in self._results]
        if not jobs:
            return
        strategy, devices, workers = SETUPS[setup]
        folder = self.folder / setup
        folder.mkdir(parents=True, exist_ok=True)
        plan = {
            "strategy": strategy,
            "devices": devices,
            "folder": str(folder),
            "data": str(self.folder / "data"),
            "clock_skew": clock_skew,
            "jobs": [dataclasses.asdict(job) for job in jobs],
        }
        if workers == 1 and devices <= 2:  # tests/conftest.py creates two.
            do_all(plan)
        else:
            (folder / "plan.json").write_text(json.dumps(plan))
            command = ["tests/distributed/worker.py", folder / "plan.json"]
            Cluster(command, folder, workers).run(timeout=600)
        for job in jobs:
            self._results[setup, job.name] = [
                dict(np.load(folder / f"{job.name}-{i}.npz")) for i in range(workers)
            ]

    def results(self, setup: str, job: Job) -> list[dict[str, np.ndarray]]:
        """The results of each process."""
        return self._results[setup, job.name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


def largest_difference(actual: dict, expected: dict, prefix: str) -> float:
    names = [name for name in expected if name.startswith(prefix)]
    assert names and names == [name for name in actual if name.startswith(prefix)]
    return max(float(np.max(np.abs(actual[k] - expected[k]))) for k in names)


def assert_trained_alike(actual: dict, expected: dict, title: str, first_step: int = 0) -> None:
    reference = {k: expected[k][first_step:] for k in ("loss", "gradient_norm")}
    assert (reference["gradient_norm"] > CLIP_NORM).all()
    losses = np.abs(actual["loss"] - reference["loss"])
    norms = np.abs(actual["gradient_norm"] / reference["gradient_norm"] - 1)
    weights = largest_difference(actual, expected, "weight ")
    print(
        f"{title}: {len(losses)} steps; largest difference of losses {losses.max():.1e}, "
        f"of gradient norms {norms.max():.1e} (relative), of weights {weights:.1e}"
    )
    assert losses.max() <= LOSS and norms.max() <= NORM and weights <= WEIGHT


def check_training(runs: Runs, setup: str, job: Job, first_step: int = 0) -> None:
    """The steps are those of one device without micro-batches."""
    (expected,) = runs.results(ALONE, training(job.task))
    _, devices, workers = SETUPS[setup]
    for i, actual in enumerate(runs.results(setup, job)):
        assert actual["replicas"] == devices * workers
        assert_trained_alike(actual, expected, f"{setup}, process {i}, {job.name}", first_step)


def check_batches(runs: Runs, setup: str, job: Job) -> None:
    """The rows of the processes together are those of one device, step by step and in order."""
    (expected,) = runs.results(ALONE, job)
    for start in job.batches_from:
        parts = [actual[f"batches {start}"] for actual in runs.results(setup, job)]
        batches = np.concatenate(parts, axis=1)
        assert len(set(batches.flat)) > 16  # Otherwise all rows would be the same.
        np.testing.assert_array_equal(batches, expected[f"batches {start}"])
    first, later = (expected[f"batches {start}"] for start in job.batches_from)
    np.testing.assert_array_equal(first[RESUMED:], later[: len(first) - RESUMED])
    print(f"{setup}, {job.name}: {batches.size} rows from each of {job.batches_from}, all the same")


def interrupt(run: Path, target: Path, step: int) -> None:
    """Copies a run as if it had been stopped after the checkpoint of a step."""
    shutil.copytree(run, target)
    folder = target / "checkpoints"
    for file in folder.glob("ckpt-*"):
        if int(file.name.partition(".")[0].removeprefix("ckpt-")) > step:
            file.unlink()
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "ckpt-{step}"\n')


def resuming(
    runs: Runs, before: str, after: str, former: Job, micro_batches: int, **config: object
) -> Job:
    """Resumes, in another setup, an interrupted run of the setup before."""
    name = f"{former.name} of {before} resumed x{micro_batches}"
    if not (runs.folder / after / name).exists():
        interrupt(runs.folder / before / former.name, runs.folder / after / name, RESUMED)
    return training(former.task, micro_batches, name, **config)


def check_counting(runs: Runs, setup: str, job: Job) -> None:
    (expected,) = runs.results(ALONE, counting(job.task, job.examples, (ALL,), runs))
    names = [k.removeprefix(f"output {ALL} ") for k in expected if k.startswith("output ")]
    metrics = [k.removeprefix(f"metric {ALL} ") for k in expected if k.startswith("metric ")]
    assert names and metrics
    kinds = [len(np.unique(expected[f"output {ALL} {name}"], axis=0)) for name in names]
    assert max(kinds) > job.examples // 2  # Otherwise their order would not matter.
    for i, actual in enumerate(runs.results(setup, job)):
        differences = []
        for size in job.eval_sizes:
            for name in metrics:
                a, b = actual[f"metric {size} {name}"], expected[f"metric {ALL} {name}"]
                assert a == pytest.approx(b, abs=1e-4), name
            for name in names:
                a, b = actual[f"output {size} {name}"], expected[f"output {ALL} {name}"]
                assert a.shape == b.shape and len(a) >= job.examples
                differences.append(np.max(np.abs(a.astype(float) - b)))
        print(
            f"{setup}, process {i}, {job.name}: {len(a)} outputs of each kind at batch sizes "
            f"{job.eval_sizes}; largest difference {max(differences):.1e}"
        )
        assert max(differences) <= OUTPUT


def do_short(runs: Runs) -> None:
    """Does the jobs of the tests that are not slow."""
    runs.do(ALONE, [training("masked"), looking("compact")])
    # The only end of a loop is the one that the processes agree on.
    seldom = {"log_every_steps": 1000, "save_checkpoints_steps": 1000}
    jobs = [
        resuming(runs, ALONE, TWO_PROCESSES, training("masked"), 2, **seldom),
        looking("compact"),
    ]
    runs.do(TWO_PROCESSES, jobs, clock_skew=1000.0)


def test_two_devices_take_the_steps_of_one_with_micro_batches_and_clipping(runs):
    runs.do(ALONE, [training("masked")])
    runs.do("two devices", [training("masked", 2)])
    check_training(runs, "two devices", training("masked", 2))


def test_a_run_of_one_device_is_resumed_by_two_processes_whose_clocks_differ(runs):
    do_short(runs)
    name = f"masked x1 of {ALONE} resumed x2"
    check_training(runs, TWO_PROCESSES, training("masked", 2, name), RESUMED)


def test_two_processes_see_the_batches_of_one_device(runs):
    do_short(runs)
    check_batches(runs, TWO_PROCESSES, looking("compact"))


@pytest.mark.slow
@pytest.mark.parametrize("setup", SETUPS)
def test_every_task_takes_the_steps_of_one_device(runs, setup):
    runs.do(ALONE, [training(task) for task in TASKS])
    jobs = [training(task, 2) for task in TASKS] + [training(task) for task in PRETRAINING]
    runs.do(setup, jobs)
    for job in jobs:
        check_training(runs, setup, job)


@pytest.mark.slow
@pytest.mark.parametrize("setup", SETUPS)
def test_every_task_counts_every_example_once(runs, setup):
    runs.do(ALONE, [training(task) for task in TASKS])
    runs.do(ALONE, [counting(task, n, (ALL,), runs) for task in TASKS for n in COUNTS])
    counts = [(task, n, sizes) for task in TASKS for n, sizes in COUNTS.items()]
    jobs = [counting(*count, runs) for count in counts]
    runs.do(setup, jobs)
    for job in jobs:
        check_counting(runs, setup, job)


@pytest.mark.slow
@pytest.mark.parametrize("after", SETUPS)
def test_a_run_is_resumed_by_any_other_devices(runs, after):
    tasks = ("masked", "compact", "squad_2")
    runs.do(ALONE, [training(task) for task in tasks])
    jobs = []
    for before, parts in zip(SETUPS, (1, 2, 1, 2)):
        runs.do(before, [training(task, 2) for task in tasks])
        for task in tasks:
            jobs.append(resuming(runs, before, after, training(task, 2), parts))
    runs.do(after, jobs)
    for job in jobs:
        check_training(runs, after, job, RESUMED)


@pytest.mark.slow
def test_two_processes_keep_one_loss_scale_in_float16(runs):
    job = training("masked", 2, name="masked float16", precision="mixed_float16")
    runs.do(ALONE, [training("masked")])
    runs.do(TWO_PROCESSES, [job])
    (expected,) = runs.results(ALONE, training("masked"))
    first, second = runs.results(TWO_PROCESSES, job)
    for name in ("loss", "gradient_norm"):
        np.testing.assert_allclose(first[name], expected[name], rtol=0.02)
    assert largest_difference(first, second, "weight ") == 0
