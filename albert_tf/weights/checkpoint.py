# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints: ours and those of the TF1 release, read and written."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError, DamagedError
from albert_tf.io import files
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.weights.checkpoint_files import CHECKPOINT_LIST, candidates
from albert_tf.weights.names import shared_by_groups
from albert_tf.weights.source import (
    VOCABULARIES,
    Source,
    find_beside,
    find_only,
    first_line,
    open_tokenizer,
)

#: As the release calls its checkpoints.
TF1_NAME = "model.ckpt-best"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_WEIGHTS = "weights/"
#: Suffixes and names that a TF1 training checkpoint holds besides the weights.
_TF1_STATE = ("/adam_m", "/adam_v", "global_step")
#: Scope of all variables in the release's TF1 hub modules.
_HUB_SCOPE = "module/"
_NOT_OFFICIAL = ("parameter_sharing",)


def open_checkpoint(prefix: str) -> Any:
    """A reader of the checkpoint of that name.

    Raises:
      AlbertError: its index is damaged.
    """
    # Not tf.train.load_checkpoint, which asks first whether this is a folder. File systems without
    # folders, such as ram://, say yes to whatever the name of a file begins with.
    try:
        return tf.compat.v1.train.NewCheckpointReader(prefix)
    except (IndexError, ValueError, tf.errors.OpError) as error:
        raise reading_error(prefix, error) from error


def check_checkpoint(prefix: str) -> None:
    """Reads a checkpoint whole, for its checksums.

    Raises:
      DamagedError: it is damaged. AlbertError: it cannot be read.
    """
    reader = open_checkpoint(prefix)
    try:
        for key in reader.get_variable_to_shape_map():
            reader.get_tensor(key)
    except (IndexError, ValueError, tf.errors.OpError) as error:
        raise reading_error(prefix, error) from error


def reading_error(prefix: str, error: Exception) -> AlbertError:
    """What to raise for an error that TensorFlow raised when it read a checkpoint.

    TensorFlow checks a CRC-32C of each block of the index and of each tensor, so what is read is
    what was written, or this error.

    Returns:
      DamagedError, or AlbertError if the files cannot be read at all, which may pass.
    """
    cannot = f"The checkpoint {prefix} cannot be read"
    folder, begin = os.path.split(f"{prefix}.")
    try:
        names = tf.io.gfile.listdir(folder or ".") if tf.io.gfile.isdir(folder or ".") else []
        sizes = {}
        for name in (name for name in names if name.startswith(begin)):
            # Another worker may have deleted what it found damaged.
            with (
                contextlib.suppress(tf.errors.NotFoundError),
                tf.io.gfile.GFile(os.path.join(folder, name), "rb") as f,
            ):
                sizes[name] = len(f.read(1))
    except tf.errors.OpError as refused:
        return AlbertError(f"{cannot}: {first_line(refused)}.")
    empty = [name for name, size in sizes.items() if not size]
    if f"{begin}index" not in sizes:
        reason = f"{begin}index is missing"
    elif not any(name.startswith(f"{begin}data-") for name in sizes):
        reason = f"{begin}data is missing"
    elif empty:
        reason = f"{empty[0]} is empty"
    else:
        reason = first_line(error)
    return DamagedError(f"The checkpoint {prefix} is damaged: {reason}.")


class CheckpointSource(Source):
    """A checkpoint of ours or of the TF1 release, with the files beside it.

    Args:
      path: anything `checkpoint_files.find_checkpoint` resolves.
    """

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")

    @functools.cached_property
    def _candidates(self) -> Iterator[str]:
        return candidates(self._path)

    @functools.cached_property
    def location(self) -> str:
        """The checkpoint's name."""
        return next(self._candidates)

    def pass_over(self, error: Exception) -> None:
        """See Source: from the best weights to the newest checkpoint, from there to older ones."""
        if not isinstance(error, AlbertError):
            error = reading_error(self.location, error)
        older = next(self._candidates, None) if isinstance(error, DamagedError) else None
        if older is None:
            raise AlbertError(f"{error} Give another one, or get it again.") from error
        print(f"{error} Taking {older}.")
        for name in ("_reader", "_keys", "shapes", "state"):
            self.__dict__.pop(name, None)
        self.location = older

    @functools.cached_property
    def _reader(self) -> Any:
        return open_checkpoint(self.location)

    @functools.cached_property
    def _keys(self) -> dict[str, str]:
        return weight_keys(self._reader.get_variable_to_shape_map())

    @functools.cached_property
    def shapes(self) -> dict[str, list[int]]:
        """See Source."""
        stored = self._reader.get_variable_to_shape_map()
        return {name: stored[key] for name, key in self._keys.items()}

    @functools.cached_property
    def state(self) -> list[str]:
        """See Source."""
        return sorted({*self._reader.get_variable_to_shape_map()} - {*self._keys.values()})

    def read(self, name: str) -> np.ndarray:
        """See Source."""
        return self._reader.get_tensor(self._keys[name])

    @property
    def _folder(self) -> str:
        return self._path if tf.io.gfile.isdir(self._path) else os.path.dirname(self._path)

    def config(self) -> AlbertConfig | None:
        """albert_config.json beside the checkpoint, or the only file of such a name."""
        path = find_beside(self._path, CONFIG_FILE)
        path = path or find_only(self._folder, "albert_config*.json")
        return AlbertConfig.from_json(path) if path else None

    def tokenizer(self, lower_case: bool | None = None) -> Tokenizer | None:
        """As tokenizer.json beside the checkpoint says, or else of a release's vocabulary."""
        path = find_beside(self._path, SPEC_FILE) or find_only(self._folder, *VOCABULARIES)
        return open_tokenizer(path, lower_case)


def weight_keys(keys: Mapping[str, object]) -> dict[str, str]:
    """Official weight names in a checkpoint, of ours or of the TF1 release, to their keys."""
    ours = {k for k in keys if k.startswith(_WEIGHTS) and k.endswith(_VALUE)}
    if ours:
        plain = {k: k[len(_WEIGHTS) : -len(_VALUE)] for k in ours if "/.OPTIMIZER_SLOT/" not in k}
        # Object-based checkpoints escape "/" in names as ".S" and "." as "..".
        return {n.replace(".S", "/").replace("..", "."): k for k, n in plain.items()}
    weights = [k for k in keys if not k.endswith(_TF1_STATE) and not k.startswith("_CHECKPOINT")]
    return {k[len(_HUB_SCOPE) :] if k.startswith(_HUB_SCOPE) else k: k for k in weights}


def write_tf1(
    folder: str,
    config: AlbertConfig,
    tokenizer: Tokenizer | None,
    weights: Mapping[str, np.ndarray],
) -> None:
    """Writes what the TF1 release's programs read: model.ckpt-best, configuration, vocabulary.

    tokenizer.json beside them keeps for us what these programs are told by flags.

    Raises:
      AlbertError: the release's code has no such model.
    """
    if config.hidden_act == "gelu_erf":
        raise AlbertError(
            "The TF1 release knows GELU in its tanh approximation only, and this model has the "
            "exact one (hidden_act 'gelu_erf'); keep it in the format tf2 or hf."
        )
    values = shared_by_groups(config).to_dict()
    files.write_json(
        os.path.join(folder, CONFIG_FILE),
        {key: value for key, value in values.items() if key not in _NOT_OFFICIAL},
    )
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, TF1_NAME),
        tensor_names=list(weights),
        shape_and_slices=[""] * len(weights),
        tensors=list(weights.values()),
    )
    _write_state(folder, TF1_NAME)
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
    saved.write(os.path.join(folder, "ckpt"))
    _write_state(folder, "ckpt")


def _write_state(folder: str, name: str) -> None:
    """The file `checkpoint`, without the absolute paths and times TensorFlow would write."""
    files.write_text(os.path.join(folder, CHECKPOINT_LIST), f'model_checkpoint_path: "{name}"\n')
