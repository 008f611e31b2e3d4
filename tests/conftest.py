# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: two logical CPUs, so that MirroredStrategy has two replicas."""

import os
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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
