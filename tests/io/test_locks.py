# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on outputs: one process at a time, and no lock outlives its process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import locks
from albert_tf.io.locks import lock_folder, lock_output

ROOT = Path(__file__).parents[2]


def test_a_second_process_is_refused_with_the_holder_and_the_time(tmp_path, hold):
    folder = tmp_path / "run"
    with hold(folder) as other:
        with pytest.raises(AlbertError) as refusal, lock_folder(str(folder), "training"):
            pass
        assert re.fullmatch(
            rf"{folder} is in use: process {other.pid} on {socket.gethostname()} has been "
            r"training there since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}; wait until it ends, "
            r"stop it, or give another path\.",
            str(refusal.value),
        )
        other.communicate("")
    with lock_folder(str(folder), "training"):
        assert os.listdir(folder) == [".lock"]


def test_a_killed_process_holds_no_lock_even_if_its_children_live(tmp_path, hold):
    folder = tmp_path / "run"
    children = (
        "import os, subprocess, time; pid = os.fork(); pid or time.sleep(60); "
        "print(pid, subprocess.Popen(['sleep', '60'], stdout=2).pid, flush=True)"
    )
    with hold(folder, children) as other:
        pids = [int(pid) for pid in other.stdout.readline().split()]
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert os.listdir(folder) == [".lock"]  # As the killed process left it.
        try:
            with lock_folder(str(folder), "training"):
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
        with lock_folder(sys.argv[1] + "/run", "training"):
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


def test_a_process_enters_its_own_locks_again(tmp_path):
    folder = tmp_path / "run"
    with lock_folder(str(folder), "training"):
        (tmp_path / "link").symlink_to(folder)
        with lock_folder(f"{tmp_path}/link/", "training"):
            pass
        with pytest.raises(subprocess.CalledProcessError):
            take(folder)
    take(folder)


def take(folder):
    """Locks a folder in another process."""
    script = (
        f"from albert_tf.io.locks import lock_folder\nwith lock_folder({str(folder)!r}, ''): pass"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)


def test_files_of_one_folder_are_locked_one_by_one(tmp_path):
    with lock_output(f"{tmp_path}/a.txt", "writing"), lock_folder(str(tmp_path), "writing"):
        assert sorted(os.listdir(tmp_path)) == [".a.txt.lock", ".lock"]
        with lock_output(f"{tmp_path}/b.txt", "writing"):
            pass
    assert not os.listdir(tmp_path)


def test_folders_created_for_a_lock_are_removed_again_if_empty(tmp_path):
    for name in ("", "result"):
        with lock_folder(f"{tmp_path}/a/b/c", "training"):
            if name:
                (tmp_path / "a/b" / name).touch()
        assert (tmp_path / "a").exists() == bool(name)
    assert os.listdir(tmp_path / "a/b") == ["result"]


def test_a_folder_that_cannot_be_written_to_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/run", Path("/proc/run")):
        refused = pytest.raises(AlbertError, match=rf"{folder} cannot be written \(")
        with refused, lock_folder(str(folder), "training"):
            pass


def test_a_damaged_lock_belongs_to_an_unknown_process(tmp_path, hold):
    with hold(tmp_path):
        (tmp_path / ".lock").write_text('{"pid": "x"}')
        refused = pytest.raises(AlbertError, match="is in use by another process; wait")
        with refused, lock_folder(str(tmp_path), "training"):
            pass


@pytest.fixture
def lease(monkeypatch):
    """Makes leases that expire soon, like those of several processes."""
    monkeypatch.setattr(locks, "RENEWAL_SECONDS", 0.05)
    monkeypatch.setattr(locks, "EXPIRY_SECONDS", 0.6)
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.1)
    made = []

    def make():
        holder = locks._Holder.this_process("training")
        made.append(locks._Lease("ram://leases/run/.lock", "ram://leases/run", holder))
        return made[-1]

    yield make
    for one in made:
        one.release()


def exists():
    return tf.io.gfile.exists("ram://leases/run/.lock")


def overwrite_lease():
    """Waits for a lease and replaces it by that of another process."""
    while not exists():
        time.sleep(0.01)
    tf.io.gfile.remove("ram://leases/run/.lock")  # Writing to it would append.
    with tf.io.gfile.GFile("ram://leases/run/.lock", "wb") as f:
        f.write(locks._Holder.this_process("building records").to_bytes())


def test_a_lease_excludes_others_until_it_is_released(lease, capfd):
    first = lease()
    with pytest.raises(AlbertError, match=f"process {os.getpid()} on .* has been training there"):
        lease()
    assert "Checking for up to 1 s whether it is still alive" in capfd.readouterr().err
    first.release()
    assert not exists()
    lease().release()
    assert not exists()


def test_the_lease_of_a_killed_process_expires(lease):
    first = lease()
    first._over.set()  # Nothing renews it any longer.
    first._thread.join()
    began = time.monotonic()
    second = lease()
    assert 0.6 <= time.monotonic() - began < 10
    first.release()
    assert second._is_own(second._read())
    second.release()
    assert not exists()


def test_of_two_simultaneous_leases_the_overwritten_one_is_given_up(lease, monkeypatch):
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.5)
    thread = threading.Thread(target=overwrite_lease)
    thread.start()
    with pytest.raises(AlbertError, match="has been building records there"):
        lease()
    thread.join()
    tf.io.gfile.remove("ram://leases/run/.lock")


def test_a_process_that_has_lost_its_lease_ends(lease, monkeypatch):
    ends = []
    monkeypatch.setattr(locks, "_end", ends.append)  # This process must not end.
    lease()
    overwrite_lease()
    end = time.monotonic() + 10
    while not ends and time.monotonic() < end:
        time.sleep(0.02)
    assert re.search(r"building records there since .* has lost the lease\.$", ends[0])


def test_remote_paths_have_a_lease(monkeypatch):
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.0)
    with lock_folder("ram://leases/again", "training"):
        with lock_folder("ram://leases/again", "training"):
            assert tf.io.gfile.listdir("ram://leases/again") == [".lock"]
        assert tf.io.gfile.exists("ram://leases/again/.lock")
    assert not tf.io.gfile.exists("ram://leases/again/.lock")
