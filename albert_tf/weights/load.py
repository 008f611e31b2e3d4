# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Recognises the format of pretrained weights, and assigns them to a model by name."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError, DamagedError, DivergedError, first_line, printable
from albert_tf.huggingface import CONFIG, WEIGHT_FILE
from albert_tf.huggingface.config import HEADS, read_config, read_task
from albert_tf.huggingface.weights import read_hugging_face
from albert_tf.io import files
from albert_tf.io.json_values import joined
from albert_tf.pretrained.locate import SAVED_MODEL, locate
from albert_tf.weights.checkpoint import CheckpointSource
from albert_tf.weights.keras_hub import PRESET_WEIGHTS, KerasHubSource
from albert_tf.weights.source import ArraysSource, Source
from albert_tf.weights.tfhub import SavedModelSource

#: The scope of all variables of the encoder.
ENCODER_SCOPE = "bert/"
_LAYERS_SCOPE = f"{ENCODER_SCOPE}encoder/"
#: A checkpoint may have fewer of these than the model.
POSITIONS = f"{ENCODER_SCOPE}embeddings/position_embeddings"
#: An encoder may lack these: Hugging Face saves models for token-level tasks (masked LM, question
#: answering) without a pooler.
POOLER = frozenset({"bert/pooler/dense/kernel", "bert/pooler/dense/bias"})
#: A masked LM may lack these; Hugging Face's published ALBERTs are masked LMs.
SENTENCE_ORDER = frozenset(
    {"cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"}
)


def open_source(path: str) -> Source:
    """Recognises the format of a pretrained model, without reading its weights.

    Args:
      path: an output directory of ours, a folder of checkpoints or a checkpoint's name; a folder
        of the TF1 release or a checkpoint's name in it; a Hugging Face folder; a SavedModel;
        an archive (.tar.gz, .tgz, .tar, .zip) of one of these; or, if there is no such file, the
        name of a model, which is downloaded if need be (see albert_tf.pretrained.locate).

    Raises:
      AlbertError: `path` is not a path, an archive is damaged or malicious, or a model cannot be
        downloaded.
    """
    path = locate(path)
    if WEIGHT_FILE.fullmatch(os.path.basename(path)):
        path = os.path.dirname(path) or os.curdir

    def holds(name) -> bool:
        return files.exists(os.path.join(path, name))

    if holds(SAVED_MODEL):
        return SavedModelSource(path)
    # Beside our own configuration, config.json may belong to something else.
    if holds(CONFIG) and not holds(CONFIG_FILE):
        return (KerasHubSource if holds(PRESET_WEIGHTS) else _HuggingFaceSource)(path)
    return CheckpointSource(path)


class _HuggingFaceSource(ArraysSource):
    """An ALBERT in a folder that Hugging Face's `save_pretrained` wrote."""

    @functools.cached_property
    def _weights(self) -> dict[str, np.ndarray]:
        return read_hugging_face(self._path, self._read_config())

    @property
    def needs_pooler(self) -> bool:
        task = read_task(self._path).get("task")
        return task not in HEADS or HEADS[task].has_pooler

    def _read_config(self) -> AlbertConfig:
        return read_config(os.path.join(self._path, CONFIG))


def check_architecture(config: AlbertConfig, path: str) -> None:
    """Raises AlbertError if the number of attention heads or the activation differs.

    The shapes of the weights do not determine these. Numbers of layers, groups and positions may
    differ: deeper models may be started from shallower ones (paper, appendix A.1). `config` is of
    the model that is initialized from `path`, see `open_source`.
    """
    own = open_source(path).config()
    for key in ("num_attention_heads", "hidden_act"):
        if own and getattr(own, key) != getattr(config, key):
            raise AlbertError(
                f"{path} was trained with {key}={getattr(own, key)!r}, but the model has "
                f"{getattr(config, key)!r}, which would ruin its outputs; correct "
                "`albert_config_file`, or the configuration beside the weights."
            )


def differences(missing: Sequence[str], unexpected: Sequence[str]) -> str:
    """Describes some of the weights that a checkpoint lacks, or has beside ours; "" without any."""
    parts = [f"it lacks {joined(missing, 2000)}"] if missing else []
    parts += [f"it also has {joined(unexpected, 2000)}"] if unexpected else []
    return "; ".join(parts)


class LoadReport(NamedTuple):
    """The result of `assign_weights`: names by outcome.

    Names in `missing` include both shapes if the shapes differ. `repeated` is the number of the
    checkpoint's positions, if the model has more; see `repeat_positions`.
    """

    checkpoint: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    repeated: int | None = None

    @property
    def positions_note(self) -> str:
        """Says which positions are repeated ones."""
        return f"positions from {self.repeated} on repeat the checkpoint's"

    def __str__(self) -> str:
        """A few lines for the terminal."""
        lines = [f"Weights from {self.checkpoint}: {len(self.matched)} variables matched"]
        if self.missing:
            lines.append(f"not in the checkpoint, left at random: {joined(self.missing, 2000)}")
        if self.unexpected:
            lines.append(f"in the checkpoint, not in the model: {joined(self.unexpected, 2000)}")
        if self.repeated:
            lines.append(self.positions_note)
        return "\n  ".join(map(printable, lines))


def load_weights(
    path: str | Source, named_weights: Mapping[str, tf.Variable], whole: bool = False
) -> LoadReport:
    """Assigns weights by name, and checks that they fit the model.

    Args:
      path: anything that `open_source` recognises, or the Source that it returns.
      named_weights: the model's weights by official name.
      whole: the source must hold every variable, except for the pooler of a model that does not
        use it. Otherwise the pooler may be missing, and task heads may be missing or have another
        shape; they keep their initial values.

    Raises:
      AlbertError: there are no readable weights, a required variable is missing or has another
        shape, or the source has layers, or a projection, that the model lacks.
    """
    source = path if isinstance(path, Source) else open_source(path)
    report = assign_weights(source, named_weights)
    required = report.missing
    if not whole:
        required = [n for n in required if n.startswith(ENCODER_SCOPE) and n not in POOLER]
    if POOLER.issuperset(required) and not source.needs_pooler:
        required = ()
    left_out = [n for n in report.unexpected if n.startswith(_LAYERS_SCOPE)]
    if required or left_out:
        advice = "Use the configuration the checkpoint was trained with."
        if not left_out and {*required} <= POOLER | SENTENCE_ORDER:
            advice = "Other libraries' masked LMs lack these weights; fine-tune the model first."
        raise AlbertError(
            f"The checkpoint {report.checkpoint} does not fit the model; "
            f"{differences(required, left_out)}. {advice}"
        )
    return report


def assign_weights(source: Source, named_weights: Mapping[str, tf.Variable]) -> LoadReport:
    """Assigns to every variable the source's weight with the same name and shape.

    A model for longer sequences repeats the source's positions; see `repeat_positions`.

    Raises:
      DivergedError: a weight is not finite.
      AlbertError: the source is damaged or cannot be read, or a weight is not a float tensor.
    """
    matched, missing, repeated = [], [], None
    try:
        left = dict(source.shapes)
        for name, variable in named_weights.items():
            shape, wanted = left.pop(name, None), variable.shape.as_list()
            if name == POSITIONS and shape and 2 < shape[0] < wanted[0] and shape[1:] == wanted[1:]:
                repeated = shape[0]
            elif shape != wanted:
                missing.append(name if shape is None else f"{name} (shape {shape}, not {wanted})")
                continue
            values = read_finite(source, name)
            variable.assign(repeat_positions(values, wanted[0]) if shape != wanted else values)
            matched.append(name)
    except DamagedError as error:
        raise DamagedError(f"{error} Get it again, or name another checkpoint.") from error
    except AlbertError:
        raise
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise AlbertError(
            f"The checkpoint {source.location} cannot be read: {first_line(error)}."
        ) from error
    unexpected = tuple(sorted(left))
    return LoadReport(source.location, tuple(matched), tuple(missing), unexpected, repeated)


def read_finite(source: Source, name: str) -> np.ndarray:
    """Returns a weight as float32; see `assign_weights` for the errors."""
    values = source.read(name)
    dtype = tf.as_dtype(values.dtype)
    if not dtype.is_floating:
        raise AlbertError(
            f"The weight {name} of {source.location} is not float, but {dtype.name}; it is not an "
            "ALBERT's: get it again."
        )
    with np.errstate(over="ignore"):
        values = values.astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise DivergedError(
            f"The weight {name} of {source.location} is not finite: its training has diverged, or "
            "the file is damaged. Use another checkpoint, or train again with a lower learning "
            "rate."
        )
    return values


def repeat_positions(embeddings: np.ndarray, number: int) -> np.ndarray:
    """Extends position embeddings to longer sequences.

    All but the first, where [CLS] is, and the last, where [SEP] often is, are repeated, similar to
    Longformer's from RoBERTa's (Beltagy et al., 2020, section 5). Attention to neighbours, which
    takes long to learn, then works at all positions from the first step. Takes float [n, E], where
    2 < n <= number; returns [number, E].
    """
    rows, trained = np.arange(number), len(embeddings)
    return embeddings[np.where(rows < trained, rows, 1 + (rows - trained) % (trained - 2))]
