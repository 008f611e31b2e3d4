# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""scripts/tpu_job.sh, with a stand-in for gcloud that fails as Google Cloud can."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.tooling

SCRIPT = Path(__file__).parents[1] / "scripts" / "tpu_job.sh"
#: Answers each call with the next line of a file named after the command: "status text".
GCLOUD = """#!/usr/bin/env bash
[[ "$1 $2 $3" == "compute tpus tpu-vm" ]] || exit 9
command=$4
echo "${@:4}" >> "$FOLDER/calls"
line=$(head -n 1 "$FOLDER/$command")
sed -i '1{$!d}' "$FOLDER/$command"
status=${line%% *}
if ((status)); then echo "${line#* }" >&2; else echo "${line#* }"; fi
exit "$status"
"""


@pytest.fixture
def job(tmp_path):
    """Runs the script; keyword arguments are the answers to each of gcloud's commands."""
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(GCLOUD)
    gcloud.chmod(0o755)
    start = tmp_path / "start.sh"
    start.write_text("cd albert_tf\npython run_pretraining.py\n")

    def run(*arguments, **answers):
        for command in ("describe", "create", "delete", "ssh"):
            (tmp_path / command).write_text("\n".join(answers.get(command, ["0 "])) + "\n")
        (tmp_path / "calls").write_text("")
        variables = {"TPU": "albert", "ZONE": "us-central2-b", "ACCELERATOR": "v4-8"}
        done = subprocess.run(
            [SCRIPT, start, *arguments],
            env={
                **os.environ,
                **variables,
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "VERSION": "tpu-vm-tf-2.15.0-pjrt",
                "FOLDER": str(tmp_path),
                "WAIT_SECONDS": "0.01",
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        calls = (tmp_path / "calls").read_text().splitlines()
        verbs = ("describe", "create", "delete", "ssh")
        return done, [call for call in calls if call.split()[0] in verbs]

    return run


def names(calls):
    return [call.split()[0] for call in calls]


def test_a_ready_tpu_runs_the_script_on_its_first_machine(job):
    done, calls = job(describe=["0 READY"])
    assert done.returncode == 0, done.stderr
    assert names(calls) == ["describe", "ssh"]
    assert calls[1].startswith("ssh albert --zone=us-central2-b --worker=0 --command=cd albert_tf")


def test_a_missing_tpu_is_created_first(job):
    done, calls = job(
        "--spot", describe=["1 ERROR: NOT_FOUND: no such TPU", "0 CREATING", "0 READY"]
    )
    assert done.returncode == 0, done.stderr
    assert names(calls) == ["describe", "create", "describe", "describe", "ssh"]
    expected = "--accelerator-type=v4-8 --version=tpu-vm-tf-2.15.0-pjrt --spot"
    assert calls[1] == f"create albert --zone=us-central2-b {expected}"


@pytest.mark.parametrize("state", ["PREEMPTED", "TERMINATED"])
def test_a_tpu_that_cannot_return_is_deleted_and_created_again(state, job):
    done, calls = job(describe=["0 READY", f"0 {state}", "0 READY"], ssh=["255 lost", "0 "])
    assert done.returncode == 0, done.stderr
    expected = ["describe", "ssh", "describe", "delete", "create", "describe", "ssh"]
    assert names(calls) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "1 ERROR: (gcloud) Reauthentication required.",
        "1 ERROR: PERMISSION_DENIED: quota project",
        "1 Connection reset by peer",
        "0 ",
        "0 REPAIRING",
        "0 STOPPING",
    ],
)
def test_a_tpu_is_never_deleted_while_its_state_is_unknown_or_can_pass(answer, job):
    done, calls = job(describe=[answer, answer, "0 READY"])
    assert done.returncode == 0, done.stderr
    assert names(calls) == ["describe", "describe", "describe", "ssh"]


def test_a_failed_deletion_does_not_lose_the_tpu(job):
    done, calls = job(
        describe=["0 PREEMPTED", "0 PREEMPTED", "0 READY"],
        delete=["1 UNAVAILABLE", "0 "],
        create=["1 ALREADY_EXISTS", "0 "],
    )
    assert done.returncode == 0, done.stderr
    assert names(calls)[:6] == ["describe", "delete", "create", "describe", "delete", "create"]


def test_a_script_that_keeps_failing_ends_the_job_with_its_status(job):
    done, calls = job(describe=["0 READY"], ssh=["1 error: --input_file is missing"])
    assert done.returncode == 1
    assert names(calls) == ["describe", "ssh"] * 3
    assert "three times in a row with exit status 1" in done.stderr
    assert "still exists" in done.stderr
