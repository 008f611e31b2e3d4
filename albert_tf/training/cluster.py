# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TF_CONFIG: the machines that train together, and the place of this process among them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time

from albert_tf.errors import AlbertError

#: How long a process waits for the others of its cluster, and how often it says so.
_LIMIT_SECONDS = 600.0
_FIRST_NOTE_SECONDS = 3.0
_NOTE_SECONDS = 30.0
#: How often it looks for them, and how long for an answer.
_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 2.0


def check_cluster() -> tuple[str, list[str]]:
    """Checks that TF_CONFIG names several processes, and that this process is one of them.

    Returns:
      The address of this process, "host:port", and those of the others.

    Raises:
      AlbertError: TF_CONFIG is wrong.
    """
    try:
        config = json.loads(os.environ.get("TF_CONFIG", ""))
        machines = {k: v for k, v in config["cluster"].items() if k in ("chief", "worker")}
        kind, index = config["task"]["type"], int(config["task"]["index"])
        number_of_kind = len(machines[kind])
        addresses = [address for of_kind in machines.values() for address in of_kind]
        for address in addresses:
            _split(address)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise AlbertError(
            "`strategy`=multi_worker needs the environment variable TF_CONFIG with a JSON object "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}.'
        ) from None
    if not 0 <= index < number_of_kind:
        raise AlbertError(
            f"TF_CONFIG says that this is {kind} {index}, but its cluster has {number_of_kind}; "
            "indices start from 0."
        )
    if len(addresses) < 2:
        raise AlbertError("TF_CONFIG names one worker only; use `strategy`=mirrored or default.")
    for address in addresses:
        if addresses.count(address) > 1:
            raise AlbertError(
                f"TF_CONFIG names the address {address} more than once; give each worker its own."
            )
    own = machines[kind][index]
    return own, [address for address in addresses if address != own]


def wait_for_others() -> None:
    """Waits until all processes of the cluster have been started, and says for whom it waits.

    TensorFlow would wait very long, without a word and deaf to signals: it keeps Python from
    running meanwhile. So each process first opens its port, where TensorFlow will listen later,
    and looks for those of the others.

    Raises:
      AlbertError: TF_CONFIG is wrong, this process's port is in use, or the others are not there
        within ten minutes.
    """
    own, others = check_cluster()
    began, since = time.monotonic(), time.strftime("%H:%M:%S")
    next_note = began + _FIRST_NOTE_SECONDS
    with _listen(own) as server:
        # All at the same time: one that was there before may have ended since.
        while missing := [address for address in others if not _answers(address)]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    server.accept()[0].close()
            now, names = time.monotonic(), ", ".join(missing)
            if now - began > _LIMIT_SECONDS:
                raise AlbertError(
                    f"No worker has answered at {names} for {_LIMIT_SECONDS / 60:.0f} minutes; "
                    "start all workers of TF_CONFIG, and check that the machines reach each other."
                )
            if now >= next_note:
                next_note = now + _NOTE_SECONDS
                print(f"Waiting for {names} since {since}.", file=sys.stderr, flush=True)
            time.sleep(_POLL_SECONDS)


def _split(address: str) -> tuple[str, int]:
    """Splits "host:port"; raises ValueError, or AttributeError for what is no string."""
    host, _, port = address.rpartition(":")
    if not host or not 0 < int(port) < 1 << 16:
        raise ValueError
    return host.strip("[]"), int(port)


def _listen(address: str) -> socket.socket:
    """Opens the port of an address on all interfaces, as TensorFlow does."""
    place = "", _split(address)[1]
    try:
        if socket.has_dualstack_ipv6():
            server = socket.create_server(place, family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            server = socket.create_server(place)
    except OSError as error:
        raise AlbertError(
            f"The port of this worker's address in TF_CONFIG, {address}, cannot be opened "
            f"({error.strerror}); does another process use it?"
        ) from error
    server.setblocking(False)
    return server


def _answers(address: str) -> bool:
    try:
        with socket.create_connection(_split(address), _ANSWER_SECONDS) as connection:
            # On one machine, a port may by chance be connected to itself.
            return connection.getsockname() != connection.getpeername()
    except OSError:
        return False
