# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepares the processes of our scripts for TensorFlow, and refuses models in forks."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import warnings

from albert_tf.errors import AlbertError

#: What TensorFlow 2.21 logs while it is imported, whatever TF_CPP_MIN_LOG_LEVEL is.
_EARLY_LOG = rb"(?m)^(WARNING: All log messages before absl::InitializeLog|I0000 ).*\n"
#: The process that has first used a model, or None.
_user = None


def prepare_tensorflow() -> None:
    """Imports TensorFlow: with fast kernels, only one Keras, and only errors in its log.

    For our scripts only: a program that imports albert_tf keeps its own settings. Environment
    variables that are already set keep their values. TF_CPP_MIN_LOG_LEVEL=0 shows the whole log.
    """
    from importlib import metadata  # Slow, and --help does not need it.

    # By default TensorFlow uses oneDNN's kernels only if the processor has AVX-512 VNNI or newer.
    # With AVX2 alone, a float32 step of base takes 0.87 of the time with them in TensorFlow 2.15,
    # and 0.66 in 2.21, whose other kernels are slower.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    with contextlib.suppress(metadata.PackageNotFoundError):
        # From TensorFlow 2.16 on, Keras 2 is this package. Otherwise TensorFlow imports Keras 3,
        # and albert_tf.keras2 then imports Keras 2 as well. Without Keras 3 the imports take 3.7
        # processor seconds, with it 5.4 (TensorFlow 2.21).
        if not metadata.version("tf_keras").startswith("2.15."):
            os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    # setuptools 80.9 and newer warn when TensorFlow Hub imports pkg_resources.
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
    import_quietly()


def import_quietly() -> None:
    """Imports TensorFlow, unless it is imported already, without what it logs meanwhile.

    If TF_CPP_MIN_LOG_LEVEL is 0, nothing is hidden.
    """
    import tempfile  # Slow, and --help does not need it.

    # On every start TensorFlow 2.15 reports errors about CUDA plug-ins that are registered twice.
    # Errors that matter reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" in sys.modules or os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0":
        return
    try:
        stderr = os.dup(2)
    except OSError:  # It is closed.
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            importlib.import_module("tensorflow")
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            os.write(2, re.sub(_EARLY_LOG, b"", written.read()))


def check_not_forked() -> None:
    """Notes that this process uses a model: in a fork of it, TensorFlow would wait for ever.

    Raises:
      AlbertError: a process of which this one is a fork has done so before.
    """
    global _user
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise AlbertError(
            "This process is a fork of one that has used a model, and there TensorFlow would wait "
            'for ever. Use spawn, as in multiprocessing.get_context("spawn"), or load the first '
            "model after the fork."
        )
