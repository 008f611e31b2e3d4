# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Workers: order, progress, and errors that stop all of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io.workers import Workers


def make_context(factor):
    return factor


def multiply(factor, item, advance):
    time.sleep(0.05 * (item % 3))
    advance(item)
    return factor * item


def fail(factor, item, advance):
    if item == 1:
        raise AlbertError("item 1 is bad")
    for _ in range(600):
        time.sleep(0.05)
        advance(0)
    return item


def die(factor, item, advance):
    advance(1)
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_the_start():
    os.kill(os.getpid(), signal.SIGKILL)


def large(factor, item, advance):
    return item * 2


def process_id(factor, item, advance):
    return os.getpid()


@pytest.mark.parametrize("num_workers", [1, 3])
def test_results_come_in_order_and_progress_adds_up(num_workers):
    amounts = []
    with Workers(num_workers, make_context, (10,)) as workers:
        results = list(workers.map(multiply, iter(range(12)), amounts.append))
        assert results == [10 * i for i in range(12)]
        assert sum(amounts) == sum(range(12))
        assert list(workers.map(multiply, [], amounts.append)) == []


def test_an_error_in_a_worker_stops_all_workers():
    began = time.monotonic()
    with pytest.raises(AlbertError, match="item 1 is bad"), Workers(2, make_context, (1,)) as w:
        list(w.map(fail, range(4), lambda amount: None))
    # The other worker would have gone on for half a minute.
    assert time.monotonic() - began < 15


def test_tasks_and_results_may_be_larger_than_what_a_pipe_holds():
    items = [bytes([i]) * 10**6 for i in range(9)]
    with Workers(2, make_context, (1,)) as workers:
        assert list(workers.map(large, items, lambda amount: None)) == [item * 2 for item in items]


@pytest.mark.parametrize("item", [0, b"0" * 10**6], ids=["small", "large"])
def test_a_killed_worker_is_an_error(item):
    with pytest.raises(StoppedError, match="killed"), Workers(2, make_context, (1,)) as w:
        list(w.map(die, [item] * 9, lambda amount: None))


def test_a_worker_killed_while_it_starts_or_waits_is_an_error():
    with pytest.raises(StoppedError, match="killed"), Workers(2, die_at_the_start, ()) as w:
        list(w.map(die, [b"0" * 10**6] * 9, lambda amount: None))
    with pytest.raises(StoppedError, match="killed"), Workers(2, make_context, (1,)) as w:
        for worker in set(w.map(process_id, range(9), lambda amount: None)):
            os.kill(worker, signal.SIGKILL)
        list(w.map(process_id, range(9), lambda amount: None))


def test_workers_of_a_script_without_a_main_guard_are_an_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from albert_tf.io.workers import Workers\n"
        "with Workers(2, int, ()) as workers:\n"
        "    list(workers.map(print, [bytes(10**6)] * 9, print))\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("albert_tf.errors.StoppedError: A worker process ended (exit code 1)")
    assert "if __name__ == '__main__':" in done.stderr  # Python's own error says what to do.
