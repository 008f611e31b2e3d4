# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: two logical CPUs, so that MirroredStrategy has two replicas."""

import os
import signal
import sys
from typing import NamedTuple

import pytest
from absl import flags

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A shell that starts the tests in the background has them ignore SIGINT, and so would the programs
# that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def two_logical_cpus():
    # Only possible before TensorFlow's first operation. Tests that do not import TensorFlow when
    # collected need no replicas, and should not wait for the import.
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )


class Finished(NamedTuple):
    """What a script left: exit status, standard output, standard error."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run_script(capfd, monkeypatch):
    """Runs a script's main() in this process, as `run_script(module, *flags)`.

    Everything but the start of a Python process is real: flags, messages, exit status.
    """

    def run(module, *arguments):
        known = set(flags.FLAGS)
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        capfd.readouterr()
        try:
            module.main()
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        finally:
            flags.FLAGS.unparse_flags()
            for name in set(flags.FLAGS) - known:
                delattr(flags.FLAGS, name)
        return Finished(status, *capfd.readouterr())

    return run
