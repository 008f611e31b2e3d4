# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A cluster of two processes of which one is asked to stop, or killed."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time

import pytest

from albert_tf.io.signals import STOP_SIGNALS
from tests.distributed.cluster import ROOT, Cluster
from tests.support.builders import tiny_config
from tests.training.damage import stored

PROGRESS = r"^train +\d+% \d+/"


def command(folder, **values):
    config = folder.parent / "config.json"
    tiny_config(30000, embedding_size=4, max_position_embeddings=512).to_json(str(config))
    given = {
        "strategy": "multi_worker",
        "input_file": ROOT / "tests/golden/tf1_records/pretrain_128.tfrecord",
        "albert_config_file": config,
        "output_dir": folder,
        "train_batch_size": 2,
        "num_train_steps": 60,
        "num_warmup_steps": 4,
        "log_every_steps": 5,
        "save_checkpoints_steps": 1000,
        **values,
    }
    return ["run_pretraining.py", *(f"--{name}={value}" for name, value in given.items())]


def assert_same_weights(whole, folder):
    """Asserts that two runs ended with the same weights, bit for bit; returns their bytes."""
    expected, weights = (
        {name: value for name, value in values.items() if name.startswith("weights/")}
        for values in (stored(path / "checkpoints") for path in (whole, folder))
    )
    assert expected and weights == expected
    return sum(map(len, weights.values()))


def stop_one(folder, logs, index, number):
    """Signals one worker of a cluster in training; the step at which both have stopped."""
    with Cluster(command(folder, log_every_steps=3), logs) as cluster:
        cluster.wait_for(PROGRESS)
        cluster.processes[index].send_signal(number)
        exits = cluster.wait()
    for done in exits:
        assert done.returncode == 128 + number, done
        assert "Traceback" not in done.stderr
    steps = [re.search(r"^Stopped at step (\d+) and saved", x.stdout, re.M)[1] for x in exits]
    assert steps[0] == steps[1]
    assert (folder / "checkpoints" / f"ckpt-{steps[0]}.index").exists()
    return int(steps[0])


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_both_within_an_evaluation(tmp_path):
    # 4,000 batches, which take seconds.
    copies = [tmp_path / f"held-out-{i}.tfrecord" for i in range(200)]
    for path in copies:
        shutil.copy(ROOT / "tests/golden/tf1_records/pretrain_128.tfrecord", path)
    values = {
        "do_eval": True,
        "eval_input_file": ",".join(map(str, copies)),
        "eval_batch_size": 2,
        "max_eval_steps": 4000,
        "eval_every_steps": 2,
        "num_train_steps": 4,
    }
    folder = tmp_path / "run"
    with Cluster(command(folder, **values), tmp_path) as cluster:
        cluster.wait_for(r"^eval +\d+% \d+/4000", 1)
        cluster.processes[1].send_signal(signal.SIGTERM)
        exits = cluster.wait()
    for done in exits:
        assert done.returncode == 143 and "Traceback" not in done.stderr, done
        assert "Stopped at step 2 and saved" in done.stdout
        assert "eval at step" not in done.stderr
    assert (folder / "checkpoints/ckpt-2.index").exists()


@pytest.mark.slow
def test_a_repeatedly_stopped_cluster_ends_like_the_uninterrupted_one(tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    Cluster(command(whole), tmp_path / "logs").run()
    signals = [(1, signal.SIGTERM), (0, signal.SIGTERM), (1, signal.SIGINT)]
    steps = [stop_one(folder, tmp_path / f"logs-{i}", *x) for i, x in enumerate(signals)]
    Cluster(command(folder), tmp_path / "logs-last").run()
    compared = assert_same_weights(whole, folder)
    print(
        f"multi_worker, 2 processes: stopped by signals to one worker at steps {steps}, all exits "
        f"as documented; {compared:,} bytes of weights equal"
    )


@pytest.mark.slow
def test_a_repeatedly_killed_cluster_ends_like_the_uninterrupted_one(tmp_path):
    whole, folder, kills = tmp_path / "whole", tmp_path / "run", 20
    values = {"num_train_steps": 400, "save_checkpoints_steps": 2}
    Cluster(command(whole, **values), tmp_path / "logs").run()
    rng, resumed = random.Random(0), 0
    for i in range(kills):
        with Cluster(command(folder, **values), tmp_path / f"logs-{i}") as cluster:
            cluster.wait_for(PROGRESS)
            time.sleep(rng.uniform(0.0, 0.3))
            if rng.random() < 0.5:
                cluster.processes[rng.randrange(2)].kill()
                cluster.wait(grace=120)
            resumed += "Resuming" in cluster.output(0, "stdout")
    Cluster(command(folder, **values), tmp_path / "logs-last").run()
    assert not list(folder.glob("*.tmp-*"))
    compared = assert_same_weights(whole, folder)
    print(
        f"multi_worker, 2 processes: {kills} kills of one worker or both, {resumed + 1} "
        f"resumptions; {compared:,} bytes of weights equal"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_ends_a_worker_that_waits_for_its_peer(tmp_path, number):
    with Cluster(command(tmp_path / "run"), tmp_path) as cluster:
        cluster.processes[1].kill()
        cluster.wait_for("Waiting for localhost:")
        cluster.processes[0].send_signal(number)
        assert cluster.processes[0].wait(60) == 128 + number
        assert cluster.output(0).endswith(f"Stopped by {number.name}.\n")


def assert_lost_its_peer(done):
    assert done.returncode == 1, done
    assert re.search(r"^error: Another worker has ended .*newest checkpoint\.$", done.stderr, re.M)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_signal_before_training_ends_the_worker_and_the_other_one_says_so(tmp_path):
    # TensorFlow takes the signal for itself when a process joins a cluster.
    with Cluster(command(tmp_path / "run"), tmp_path) as cluster:
        cluster.wait_for("Pretraining on", 1, "stdout")
        cluster.processes[1].send_signal(signal.SIGTERM)
        exits = cluster.wait(grace=120)
    assert exits[1].returncode == 143
    assert exits[1].stderr.endswith("Stopped by SIGTERM.\n")
    assert_lost_its_peer(exits[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("index", [0, 1])
def test_a_worker_that_lost_its_peer_ends_with_one_sentence(tmp_path, index, number):
    folder = tmp_path / "run"
    with Cluster(command(folder, num_train_steps=100_000), tmp_path) as cluster:
        cluster.wait_for(PROGRESS)
        cluster.processes[index].send_signal(number)
        began = time.monotonic()
        cluster.processes[1 - index].wait(120)
        seconds = time.monotonic() - began
        cluster.kill()
        exits = cluster.wait()
    assert_lost_its_peer(exits[1 - index])
    name = signal.Signals(number).name
    print(f"{name} to worker {index} of 2: the other one ended after {seconds:.1f} s")
