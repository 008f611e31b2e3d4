# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes TensorFlow checkpoints: ours and those of the TF1 release."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError, DamagedError, StoppedError, first_line
from albert_tf.io import files
from albert_tf.io.storage import retried
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer, find_vocabulary
from albert_tf.weights.run_folder import CHECKPOINT_LIST, files_of, find_beside, find_checkpoint
from albert_tf.weights.source import Source

#: The release's name for its checkpoints.
TF1_NAME = "model.ckpt-best"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_WEIGHTS = "weights/"
#: Suffixes and names of what a TF1 training checkpoint holds beside the weights.
_TF1_STATE = ("/adam_m", "/adam_v", "global_step")
#: Scope of all variables in the release's TF1 hub modules.
_HUB_SCOPE = "module/"
#: TensorFlow's errors on reading a checkpoint. IndexError: its data is cut off.
_READ_ERRORS = (IndexError, ValueError, tf.errors.OpError)


def check_checkpoint(prefix: str) -> None:
    """Reads a whole checkpoint, which verifies its checksums; raises as `read_checkpoint` does."""

    def read_all() -> None:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        for key in reader.get_variable_to_shape_map():
            reader.get_tensor(key)

    read_checkpoint(prefix, read_all)


def read_checkpoint(prefix: str, read: Callable[[], Any]) -> Any:
    """Calls `read`, maybe twice, which reads a checkpoint, and finds out what its errors mean.

    TensorFlow stores a CRC-32C of each block of the index and of each tensor, so damage always
    raises an error. But so does a file system that fails for a moment, and TensorFlow's reader does
    not always tell which. So the bytes are read without it: if that works and `read` fails again,
    the checkpoint is damaged.

    Raises:
      DamagedError: a file is missing, cut off or does not match its checksums.
      StoppedError: the files cannot be read for now.
    """
    try:
        return read()
    except _READ_ERRORS:
        paths = _readable_files(prefix)
    try:
        return read()
    except _READ_ERRORS as error:
        index = f"{prefix}.index"
        reason = first_line(error) if index in paths else f"{index} is missing"
        raise DamagedError(f"The checkpoint {prefix} is damaged: {reason}.") from error


def _readable_files(prefix: str) -> list[str]:
    """Reads all files of a checkpoint and returns their paths; raises StoppedError."""

    def read(path) -> None:
        with tf.io.gfile.GFile(path, "rb") as f:
            while f.read(1 << 24):
                pass

    paths = []
    for path in files_of(prefix):
        try:
            retried(read, path)
            paths.append(path)
        except tf.errors.NotFoundError:
            pass  # The chief may have renamed it.
        except tf.errors.OpError as error:
            raise StoppedError(
                f"The checkpoint {prefix} cannot be read: {first_line(error)}."
            ) from error
    return paths


class TensorFlowSource(Source):
    """Weights in a checkpoint of TensorFlow, opened when they are needed.

    Attributes:
      _keys: the key of each weight in the checkpoint, by official name.
    """

    @property
    def _prefix(self) -> str:
        return self.location

    @functools.cached_property
    def _reader(self) -> Any:
        # Not tf.train.load_checkpoint, which first asks whether this is a folder. File systems
        # without folders, such as ram://, say yes to every prefix of a file's name.
        new_reader = tf.compat.v1.train.NewCheckpointReader
        return read_checkpoint(self._prefix, lambda: new_reader(self._prefix))

    @functools.cached_property
    def _stored(self) -> dict[str, list[int]]:
        """The shapes of everything in the checkpoint, by key."""
        return self._reader.get_variable_to_shape_map()

    def read(self, name: str) -> np.ndarray:
        """Returns the weight with that official name."""
        value = read_checkpoint(self._prefix, lambda: self._reader.get_tensor(self._keys[name]))
        return value.reshape(self.shapes[name])


class CheckpointSource(TensorFlowSource):
    """A checkpoint of ours or of the TF1 release, with the files beside it.

    Its path is anything that `run_folder.find_checkpoint` accepts.
    """

    @functools.cached_property
    def location(self) -> str:
        """The checkpoint's name."""
        return find_checkpoint(self._path)

    @functools.cached_property
    def _keys(self) -> dict[str, str]:
        return weight_keys(self._stored)

    @functools.cached_property
    def shapes(self) -> dict[str, list[int]]:
        """Shapes by official name."""
        return {name: self._stored[key] for name, key in self._keys.items()}

    def _read_config(self) -> AlbertConfig | None:
        """Reads albert_config.json beside the checkpoint or of the run, or the only file of a
        similar name beside the checkpoint."""
        path = find_beside(self._path, CONFIG_FILE)
        path = path or files.find_only(self._folder, "albert_config*.json")
        return AlbertConfig.from_json(path) if path else None

    def _find_vocabulary(self) -> str | None:
        """Finds a vocabulary beside the checkpoint, or tokenizer.json of the run."""
        return find_vocabulary(self._folder) or find_beside(self._path, SPEC_FILE)


def weight_keys(keys: Mapping[str, object]) -> dict[str, str]:
    """Returns the keys of the weights in a checkpoint, ours or TF1's, by official name."""
    ours = [k for k in keys if k.startswith(_WEIGHTS) and k.endswith(_VALUE)]
    if ours:
        # Object-based checkpoints escape "/" in names as ".S" and "." as "..".
        names = (k.removeprefix(_WEIGHTS).removesuffix(_VALUE) for k in ours)
        return {n.replace(".S", "/").replace("..", "."): k for n, k in zip(names, ours)}
    weights = [k for k in keys if not k.endswith(_TF1_STATE) and not k.startswith("_CHECKPOINT")]
    return {k.removeprefix(_HUB_SCOPE): k for k in weights}


def write_tf1(
    folder: str,
    config: AlbertConfig,
    tokenizer: Tokenizer | None,
    weights: Mapping[str, np.ndarray],
) -> None:
    """Writes the files that the TF1 release's programs read, in a new folder.

    They are model.ckpt-best, configuration and vocabulary; and tokenizer.json, which keeps the
    settings that these programs take as flags.

    Raises:
      AlbertError: the release's code has no such model.
    """
    if config.hidden_act == "gelu_erf":
        raise AlbertError(
            "The TF1 release has GELU in its tanh approximation only, and this model has the "
            "exact one (hidden_act 'gelu_erf'); keep it in the format tf2 or hf."
        )
    values = config.shared_by_groups().to_dict()
    del values["parameter_sharing"]  # A key that the release does not have.
    files.write_json(os.path.join(folder, CONFIG_FILE), values)
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, TF1_NAME),
        tensor_names=list(weights),
        shape_and_slices=[""] * len(weights),
        tensors=list(weights.values()),
    )
    list_newest(folder, TF1_NAME)
    if tokenizer:
        tokenizer.save(folder)


def write_tf2(
    folder: str,
    config: AlbertConfig,
    tokenizer: Tokenizer | None,
    weights: Mapping[str, np.ndarray],
) -> None:
    """Writes our own layout: a checkpoint, albert_config.json, tokenizer.json."""
    config.to_json(os.path.join(folder, CONFIG_FILE))
    if tokenizer:
        tokenizer.save(folder)
    variables = {name: tf.Variable(value) for name, value in weights.items()}
    saved = tf.train.Checkpoint(weights=tf.train.Checkpoint(**variables))
    retried(saved.write, os.path.join(folder, "ckpt"))
    list_newest(folder, "ckpt")


def list_newest(folder: str, name: str) -> None:
    """Names a checkpoint for tf.train.latest_checkpoint and other programs."""
    files.write_text(os.path.join(folder, CHECKPOINT_LIST), f'model_checkpoint_path: "{name}"\n')
