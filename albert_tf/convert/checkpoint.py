# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints: ours and those of the TF1 release, read and written."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.convert.names import shared_by_groups
from albert_tf.convert.source import (
    VOCABULARIES,
    Source,
    find_beside,
    find_only,
    first_line,
    open_tokenizer,
)
from albert_tf.errors import AlbertError
from albert_tf.json_values import from_json
from albert_tf.tokenization import SPEC_FILE, Tokenizer

#: Folders of an output directory, and the file that tells which weights are the best.
CHECKPOINTS = "checkpoints"
BEST = "best"
BEST_RECORD = "best.json"
#: As the release calls its checkpoints.
TF1_NAME = "model.ckpt-best"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_WEIGHTS = "weights/"
#: Suffixes and names that a TF1 training checkpoint holds besides the weights.
_TF1_STATE = ("/adam_m", "/adam_v", "global_step")
#: Scope of all variables in the release's TF1 hub modules.
_HUB_SCOPE = "module/"
_NOT_OFFICIAL = ("parameter_sharing",)


def find_checkpoint(path: str) -> str:
    """Resolves a checkpoint prefix, a folder of checkpoints or an output directory.

    An output directory gives its best weights if there are any, else its newest checkpoint; the
    folder of a release its only one.

    Raises:
      AlbertError: there is no checkpoint, or no telling which of several.
    """
    if tf.io.gfile.exists(path + ".index"):
        return path
    for folder in (os.path.join(path, BEST), path):
        record = read_best(folder)
        if record:
            return os.path.join(folder, record.checkpoint)
    for folder in (os.path.join(path, CHECKPOINTS), path):
        newest = named_newest(folder)
        if newest:
            return newest
    found = sorted(tf.io.gfile.glob(os.path.join(path, "*.index")))
    if len(found) == 1:
        return found[0][: -len(".index")]
    if found:
        names = ", ".join(os.path.basename(name)[: -len(".index")] for name in found)
        raise AlbertError(f"{path} holds several checkpoints; name one of them: {names}.")
    raise AlbertError(
        f"There is no checkpoint at {path}; give an output directory of a run, a folder or archive "
        "of a release, a Hugging Face folder, a SavedModel, or the name of a checkpoint without "
        "its .index ending."
    )


@dataclasses.dataclass(frozen=True)
class BestRecord:
    """The best evaluation of a run, and the name of the checkpoint beside the record."""

    step: int
    metric: str
    value: float
    checkpoint: str


def read_best(folder: str) -> BestRecord | None:
    """The record of the best weights in a folder; None if there is none.

    Raises:
      AlbertError: it is damaged.
    """
    path = os.path.join(folder, BEST_RECORD)
    if not tf.io.gfile.exists(path):
        return None
    record = from_json(BestRecord, files.read_json(path, "record of the best weights"), path)
    files.join_named(folder, record.checkpoint, path)
    return record


def named_newest(folder: str) -> str | None:
    """The checkpoint that the file `checkpoint` names, if it lies in the same folder.

    Absolute names in it are of where the folder was when it was written.
    """
    try:
        # Not tf.train.latest_checkpoint, which logs what it does not find.
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # Not UTF-8.
        return None
    name = os.path.basename(state.model_checkpoint_path) if state else ""
    there = name and "\0" not in name and tf.io.gfile.exists(os.path.join(folder, f"{name}.index"))
    return os.path.join(folder, name) if there else None


def open_checkpoint(prefix: str) -> Any:
    """A reader of the checkpoint of that name.

    Raises:
      AlbertError: its index is damaged.
    """
    # Not tf.train.load_checkpoint, which asks first whether this is a folder. File systems without
    # folders, such as ram://, say yes to whatever the name of a file begins with.
    try:
        return tf.compat.v1.train.NewCheckpointReader(prefix)
    except (ValueError, tf.errors.OpError) as error:
        raise AlbertError(
            f"The checkpoint {prefix} cannot be read: {first_line(error)}."
        ) from error


class CheckpointSource(Source):
    """A checkpoint of ours or of the TF1 release, with the files beside it.

    Args:
      path: anything `find_checkpoint` resolves.
    """

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")

    @functools.cached_property
    def location(self) -> str:
        """The checkpoint's name."""
        return find_checkpoint(self._path)

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
    files.write_text(os.path.join(folder, "checkpoint"), f'model_checkpoint_path: "{name}"\n')
