# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The scripts for clusters, run with stand-ins for the cluster's own commands alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf
import yaml
from absl import flags

import run_pretraining
from albert_tf.tasks.training_flags import run_settings
from albert_tf.training.specs import RunConfig

pytestmark = pytest.mark.tooling

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
#: Shows what a process on a machine of the cluster is started with.
SHOW = "import os, sys; print(os.environ['TF_CONFIG'].replace('\\n', ' '), *sys.argv[1:], sep='|')"


def put_on_path(folder, name, text):
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def environment(folder, **variables):
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables}


def resolve(tf_config, monkeypatch):
    """The machines and this process's place among them, as MultiWorkerMirroredStrategy reads it."""
    monkeypatch.setenv("TF_CONFIG", tf_config)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.task_type == "worker"
    return resolver.cluster_spec().as_dict()["worker"], resolver.task_id


@pytest.fixture
def slurm(tmp_path):
    """Slurm's commands: three machines, on which srun runs its command one after the other."""
    names = "node07 node08 node11"
    put_on_path(
        tmp_path,
        "scontrol",
        f'if [[ "$*" == "show hostnames node[07-08,11]" ]]; then printf "%s\\n" {names}\n'
        f'else echo "$*" >> {tmp_path}/scontrol.log; fi',
    )
    put_on_path(
        tmp_path,
        "srun",
        "[[ $1 == --* ]] && shift\n"
        'for i in 0 1 2; do SLURM_PROCID=$i "$@" || status=$?; done; exit "${status:-0}"',
    )
    variables = {"SLURM_JOB_NODELIST": "node[07-08,11]", "SLURM_JOB_ID": "1234567"}

    def run(*command):
        return subprocess.run(
            [SCRIPTS / "slurm_train.sh", *command],
            env=environment(tmp_path, **variables),
            capture_output=True,
            text=True,
        )

    return run


def test_slurm_starts_a_worker_a_machine_with_its_place_in_the_cluster(slurm, monkeypatch):
    done = slurm(sys.executable, "-c", SHOW, "--output_dir=a b")
    assert done.returncode == 0, done.stderr
    lines = [line.split("|") for line in done.stdout.splitlines()]
    workers = ["node07:24567", "node08:24567", "node11:24567"]
    found = [resolve(tf_config, monkeypatch) for tf_config, _ in lines]
    assert found == [(workers, i) for i in range(3)]
    assert {argument for _, argument in lines} == {"--output_dir=a b"}


@pytest.mark.parametrize(("status", "requeued"), [(143, True), (1, False), (0, False)])
def test_slurm_queues_a_job_again_that_ran_out_of_time(slurm, tmp_path, status, requeued):
    assert slurm("bash", "-c", f"exit {status}").returncode == status
    log = tmp_path / "scontrol.log"
    assert (log.read_text() if log.exists() else "") == "requeue 1234567\n" * requeued


def test_kubernetes_starts_pretraining_with_flags_it_has(tmp_path, monkeypatch):
    service, job = yaml.safe_load_all((SCRIPTS / "kubernetes_train.yaml").read_text())
    machines = job["spec"]["completions"]
    assert job["spec"]["parallelism"] == machines
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    assert variables == {"MACHINES": str(machines)}
    put_on_path(tmp_path, "python", f'exec {sys.executable} -c "{SHOW}" "$@"')
    command = [*container["command"], *container["args"]]
    found = []
    for index in range(machines):
        # Kubernetes sets the index in the pods of an Indexed job.
        env = environment(tmp_path, **variables, JOB_COMPLETION_INDEX=str(index))
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        tf_config, script, *given = done.stdout.strip().split("|")
        found.append(resolve(tf_config, monkeypatch))
    name = job["metadata"]["name"]
    domain = service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" and pod["subdomain"] == domain
    assert found == [([f"{name}-{i}.{domain}:2222" for i in range(4)], j) for j in range(4)]
    assert script == "run_pretraining.py"
    known = set(flags.FLAGS)
    run_pretraining.define_flags()
    try:
        assert flags.FLAGS([script, *given]) == [script]
        config = RunConfig(**{**run_settings(), "learning_rate": 0.001})
    finally:
        flags.FLAGS.unparse_flags()
        for flag in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, flag)
    assert config.strategy == "multi_worker"
    replicas = machines * container["resources"]["limits"]["nvidia.com/gpu"]
    assert config.train_batch_size % (replicas * config.gradient_accumulation_steps) == 0
    assert config.eval_batch_size % replicas == 0


def keep_running(folder, text, **kwargs):
    put_on_path(folder, "job", text)
    return subprocess.Popen(
        [SCRIPTS / "keep_running.sh", folder / "job"],
        env={**os.environ, "RETRY_SECONDS": "0"},
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def test_a_command_is_started_again_until_it_succeeds(tmp_path):
    count = tmp_path / "count"
    loop = keep_running(tmp_path, f"echo >> {count}; (($(wc -l < {count}) == 3)) || exit 143")
    assert loop.wait(30) == 0
    assert len(count.read_text()) == 3


def test_a_command_that_cannot_work_is_given_up(tmp_path):
    count = tmp_path / "count"
    loop = keep_running(tmp_path, f"echo >> {count}; exit 1")
    assert loop.wait(30) == 1
    assert len(count.read_text()) == 3
    assert "exit status 1 three times within a minute" in loop.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_command_save_and_ends_the_loop(tmp_path, number):
    saved, ready = tmp_path / "saved", tmp_path / "ready"
    save = f"trap 'sleep 0.5; echo >> {saved}; exit 143' TERM"
    loop = keep_running(tmp_path, f"{save}\ntouch {ready}\nwhile true; do sleep 0.1; done")
    while not ready.exists():
        assert loop.poll() is None
        time.sleep(0.05)
    loop.send_signal(number)
    assert loop.wait(30) == 143
    assert saved.read_text() == "\n"
