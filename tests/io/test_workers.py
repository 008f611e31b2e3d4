# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Workers: order, progress, and errors that stop all of them."""

import os
import signal
import sys
import time

import pytest

from albert_tf.errors import AlbertError
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


def standard_error_of_tensorflow_s_import(path, item, advance):
    sys.path.insert(0, path)
    with open(os.path.join(path, "written"), "wb+") as written:
        os.dup2(written.fileno(), 2)
        import tensorflow  # noqa: F401

        written.seek(0)
        return written.read()


def die(factor, item, advance):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_results_come_in_order_and_progress_adds_up(num_workers):
    amounts = []
    with Workers(num_workers, make_context, (10,)) as workers:
        results = list(workers.map(multiply, iter(range(12)), amounts.append))
        assert results == [10 * i for i in range(12)]
        assert sum(amounts) == sum(range(12))
        assert list(workers.map(multiply, [], amounts.append)) == []


def test_workers_drop_the_same_lines_of_tensorflow_s_import_as_scripts(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os\n"
        "os.write(2, b'I0000 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU "
        "will not be used.\\nE0000 An error.\\n')\n"
    )
    with Workers(2, make_context, (str(tmp_path),)) as workers:
        (shown,) = workers.map(standard_error_of_tensorflow_s_import, [0], lambda amount: None)
    assert shown == b"E0000 An error.\n"


def test_an_error_in_a_worker_stops_all_workers():
    began = time.monotonic()
    with pytest.raises(AlbertError, match="item 1 is bad"), Workers(2, make_context, (1,)) as w:
        list(w.map(fail, range(4), lambda amount: None))
    # The other worker would have gone on for half a minute.
    assert time.monotonic() - began < 15


def test_a_killed_worker_is_an_error():
    with pytest.raises(AlbertError, match="killed"), Workers(2, make_context, (1,)) as w:
        list(w.map(die, range(4), lambda amount: None))
