# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Waiting for the other processes of a cluster."""

from __future__ import annotations

import json
import re
import socket
import threading
import time

import pytest

from albert_tf.errors import AlbertError
from albert_tf.training import cluster
from tests.distributed.cluster import free_ports


@pytest.fixture
def addresses(monkeypatch):
    """The addresses of three workers, of which this process is the first."""
    hosts = [f"localhost:{port}" for port in free_ports(3)]
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": hosts}, "task": task}))
    monkeypatch.setattr(cluster, "_FIRST_NOTE_SECONDS", 0.0)
    return hosts


def port(address):
    return int(address.rpartition(":")[2])


def test_a_process_waits_for_all_others_and_says_for_whom(addresses, capsys):
    waiting = threading.Thread(target=cluster.wait_for_others)
    with socket.create_server(("localhost", port(addresses[1]))):
        waiting.start()
        time.sleep(1.5)
        assert waiting.is_alive()
        # The others see this one.
        socket.create_connection(("localhost", port(addresses[0])), 1.0).close()
        with socket.create_server(("localhost", port(addresses[2]))):
            waiting.join(5.0)
            assert not waiting.is_alive()
    socket.create_server(("localhost", port(addresses[0]))).close()  # Free again.
    line = f"Waiting for {addresses[2]} since [0-9:]{{8}}.\n"
    assert re.fullmatch(f"(Waiting for {addresses[1]}, .*\n)?{line}", capsys.readouterr().err)


def test_a_process_does_not_wait_for_ever(addresses, monkeypatch):
    monkeypatch.setattr(cluster, "_LIMIT_SECONDS", 1.0)
    with pytest.raises(AlbertError, match=f"No worker has answered at {', '.join(addresses[1:])} "):
        cluster.wait_for_others()


def test_a_port_in_use_is_one_sentence(addresses):
    refused = pytest.raises(AlbertError, match=f"{addresses[0]}, cannot be opened .*in use")
    with socket.create_server(("", port(addresses[0]))), refused:
        cluster.wait_for_others()
