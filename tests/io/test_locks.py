# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on outputs: one process at a time, and no lock outlives its process."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.locks import lock_folder

ROOT = Path(__file__).parents[2]


def test_a_second_process_is_refused_with_the_holder_and_the_time(tmp_path, hold):
    folder = tmp_path / "run"
    with hold(folder) as other:
        text = f"{folder} is in use by process {other.pid} on {socket.gethostname()}; wait until"
        with pytest.raises(AlbertError, match=text), lock_folder(str(folder)):
            pass
        other.communicate("")
    with lock_folder(str(folder)):
        assert os.listdir(folder) == [".lock"]


def test_a_killed_process_holds_no_lock_even_if_its_children_live(tmp_path, hold):
    folder = tmp_path / "run"
    children = (
        # The forked child releases the lock when it first runs, so wait until it does.
        "import os, subprocess, time; ready, started = os.pipe(); pid = os.fork(); "
        "pid or (os.write(started, b'.'), time.sleep(60)); os.read(ready, 1); "
        "print(pid, subprocess.Popen(['sleep', '60'], stdout=2).pid, flush=True)"
    )
    with hold(folder, children) as other:
        pids = [int(pid) for pid in other.stdout.readline().split()]
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert os.listdir(folder) == [".lock"]  # As the killed process left it.
        try:
            with lock_folder(str(folder)):
                assert str(os.getpid()) in (folder / ".lock").read_text()
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)  # An error if it no longer lives.
    assert not os.listdir(folder)


def test_processes_in_turn_never_hold_a_folder_together(tmp_path):
    # Each release deletes the file that the others are opening.
    script = """
import os, sys
from albert_tf.errors import AlbertError
from albert_tf.io.locks import lock_folder
for _ in range(3):
    os.fork()
held = 0
while held < 30:
    try:
        with lock_folder(sys.argv[1] + "/run"):
            os.close(os.open(sys.argv[1] + "/inside", os.O_CREAT | os.O_EXCL))
            os.unlink(sys.argv[1] + "/inside")
            held += 1
    except AlbertError:
        pass
os.write(1, b"done ")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (8 * "done ", "")
    assert not list(tmp_path.rglob("*lock"))


def test_a_thread_enters_its_own_locks_again(tmp_path):
    folder = tmp_path / "run"
    with lock_folder(str(folder)):
        (tmp_path / "link").symlink_to(folder)
        with lock_folder(f"{tmp_path}/link/"):
            pass
        with pytest.raises(subprocess.CalledProcessError):
            take(folder)
    take(folder)


def take(folder):
    """Locks a folder in another process."""
    script = f"from albert_tf.io.locks import lock_folder\nwith lock_folder({str(folder)!r}): pass"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)


def test_folders_created_for_a_lock_are_removed_again_if_empty(tmp_path):
    for name in ("", "result"):
        with lock_folder(f"{tmp_path}/a/b/c"):
            if name:
                (tmp_path / "a/b" / name).touch()
        assert (tmp_path / "a").exists() == bool(name)
    assert os.listdir(tmp_path / "a/b") == ["result"]


def test_a_folder_that_cannot_be_written_to_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/run", Path("/proc/run")):
        refused = pytest.raises(AlbertError, match=rf"{folder} cannot be written \(")
        with refused, lock_folder(str(folder)):
            pass


def test_a_lock_follows_no_link_and_changes_no_file_of_others(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for make in (os.symlink, os.link, lambda _, path: os.mkfifo(path)):
        folder = tmp_path / "run"
        folder.mkdir()
        make(precious, folder / ".lock")
        refused = pytest.raises(
            AlbertError, match=r"\.lock( is not a lock that this program has|\);)"
        )
        with refused, lock_folder(str(folder)):
            pass
        assert precious.read_text() == "mine"
        assert os.listdir(folder) == [".lock"]
        (folder / ".lock").unlink()
        folder.rmdir()


def test_another_thread_of_the_process_is_refused(tmp_path):
    def enter():
        with lock_folder(str(tmp_path)):
            return True

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        with lock_folder(str(tmp_path)), lock_folder(str(tmp_path)):
            refused = thread.submit(enter)
            with pytest.raises(AlbertError, match=f"in use by process {os.getpid()} on"):
                refused.result()
        assert thread.submit(enter).result()


def test_remote_paths_have_no_lock():
    with lock_folder("ram://unlocked/run"):
        assert not tf.io.gfile.exists("ram://unlocked")
