# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The scripts for clusters, run with stand-ins for the commands of a cluster."""

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

from albert_tf.scripts import run_pretraining
from albert_tf.tasks.flags import run_settings
from albert_tf.tasks.pretraining.config import PretrainingConfig
from tests.support.script_flags import temporary_flags

pytestmark = pytest.mark.tooling

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
#: Prints TF_CONFIG and the arguments of a process on a machine of the cluster.
SHOW = "import os, sys; print(os.environ['TF_CONFIG'].replace('\\n', ' '), *sys.argv[1:], sep='|')"


def put_on_path(folder, name, text):
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def environment(folder, **variables):
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables}


def resolve(tf_config, monkeypatch):
    """Returns the machines and this process's index, as MultiWorkerMirroredStrategy reads them."""
    monkeypatch.setenv("TF_CONFIG", tf_config)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.task_type == "worker"
    return resolver.cluster_spec().as_dict()["worker"], resolver.task_id


@pytest.fixture
def slurm(tmp_path):
    """Runs the script with Slurm's commands for three machines; srun uses them in turn."""
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


def test_slurm_starts_one_worker_per_machine_with_its_index(slurm, monkeypatch):
    done = slurm(sys.executable, "-c", SHOW, "--output_dir=a b")
    assert done.returncode == 0, done.stderr
    lines = [line.split("|") for line in done.stdout.splitlines()]
    workers = ["node07:24567", "node08:24567", "node11:24567"]
    resolved = [resolve(tf_config, monkeypatch) for tf_config, _ in lines]
    assert resolved == [(workers, i) for i in range(3)]
    assert {argument for _, argument in lines} == {"--output_dir=a b"}


@pytest.mark.parametrize(("status", "requeued"), [(143, True), (1, False), (0, False)])
def test_slurm_requeues_a_job_that_ran_out_of_time(slurm, tmp_path, status, requeued):
    assert slurm("bash", "-c", f"exit {status}").returncode == status
    log = tmp_path / "scontrol.log"
    assert (log.read_text() if log.exists() else "") == "requeue 1234567\n" * requeued


def test_kubernetes_starts_pretraining_with_existing_flags(tmp_path, monkeypatch):
    service, job = yaml.safe_load_all((SCRIPTS / "kubernetes_train.yaml").read_text())
    machines = job["spec"]["completions"]
    assert job["spec"]["parallelism"] == machines
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    assert variables == {"MACHINES": str(machines)}
    put_on_path(tmp_path, "python", f'exec {sys.executable} -c "{SHOW}" "$@"')
    command = [*container["command"], *container["args"]]
    resolved = []
    for index in range(machines):
        # Kubernetes sets the index in the pods of an Indexed job.
        env = environment(tmp_path, **variables, JOB_COMPLETION_INDEX=str(index))
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        tf_config, script, *given = done.stdout.strip().split("|")
        resolved.append(resolve(tf_config, monkeypatch))
    name = job["metadata"]["name"]
    domain = service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" and pod["subdomain"] == domain
    assert resolved == [([f"{name}-{i}.{domain}:2222" for i in range(4)], j) for j in range(4)]
    assert script == "run_pretraining.py"
    with temporary_flags() as flags:
        run_pretraining.define_flags()
        assert flags([script, *given]) == [script]
        config = PretrainingConfig(**run_settings(PretrainingConfig))
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


@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ("(($(wc -l < {count}) == 3)) || exit 143", 0, ""),
        ("exit 1", 1, "exit status 1 three times within a minute"),
    ],
)
def test_a_command_is_restarted_until_it_succeeds_or_fails_repeatedly(
    tmp_path, command, status, error
):
    count = tmp_path / "count"
    loop = keep_running(tmp_path, f"echo >> {count}; {command.format(count=count)}")
    assert loop.wait(30) == status
    assert len(count.read_text()) == 3
    assert error in loop.stderr.read()


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
