# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepares the processes of our scripts for the import of TensorFlow."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec
from types import ModuleType

from albert_tf.io.interrupts import end_process
from albert_tf.io.signals import kept_handlers
from albert_tf.io.streams import standard_error_without

#: Lines that TensorFlow writes during its import, before it reads TF_CPP_MIN_LOG_LEVEL: abseil's
#: note on logging, which kernels are used, and that there is no GPU (I stands for INFO). In 2.21,
#: two of its libraries write the last two.
_NOISE = (
    "WARNING: All log messages before absl::InitializeLog\\(\\) is called are written to STDERR$",
    "I[0-9]{4} .* oneDNN custom operations are on\\. You may see .*$",
    "I[0-9]{4} .* Could not find cuda drivers on your machine, GPU will not be used\\.$",
)


def prepare_tensorflow() -> None:
    """Makes TensorFlow use fast kernels, import only one Keras, and log only errors.

    For our scripts only: a program that imports albert_tf keeps its own settings. Environment
    variables that are already set keep their values. TF_CPP_MIN_LOG_LEVEL=0 shows the whole log.
    """
    # On every start TensorFlow 2.15 reports errors about CUDA plug-ins that are registered twice.
    # Errors that matter reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # By default TensorFlow uses oneDNN's kernels only if the processor has AVX-512 VNNI or newer.
    # With AVX2 alone, a float32 step of base takes 0.87 of the time with them in TensorFlow 2.15,
    # and 0.66 in 2.21, whose other kernels are slower.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    # setuptools 80.9 and newer warn when TensorFlow Hub imports pkg_resources.
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _TensorFlowFinder())


class _TensorFlowFinder(importlib.abc.MetaPathFinder):
    """Replaces the import of TensorFlow by `_import`, wherever it first happens."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of TensorFlow; None for other modules."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(_import, spec.loader.exec_module)
        return spec


def _import(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    if _keras_2_is_a_package():
        # Otherwise TensorFlow imports Keras 3, and albert_tf.keras2 then imports Keras 2 as well.
        # Without Keras 3 the imports take 3.7 processor seconds, with it 5.4 (TensorFlow 2.21).
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    noise = () if os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0" else _NOISE
    # Python discards most exceptions of signal handlers that run during an import.
    with standard_error_without(noise), kept_handlers(in_scripts=end_process):
        execute(module)


def _keras_2_is_a_package() -> bool:
    """Returns whether Keras 2 is the package tf_keras, as it is from TensorFlow 2.16 on."""
    try:
        return not metadata.version("tf_keras").startswith("2.15.")
    except metadata.PackageNotFoundError:
        return False
