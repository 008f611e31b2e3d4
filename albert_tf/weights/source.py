# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Source: a pretrained model as it lies on disk, whatever wrote it; and the match with a model."""

from __future__ import annotations

import abc
import collections
import dataclasses
import os
import re
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError, DamagedError
from albert_tf.tokenization.tokenizer import Tokenizer

#: What vocabularies are called in releases.
VOCABULARIES = ("*.model", "*vocab*.txt")
#: Variables of the encoder have names below it.
ENCODER_SCOPE = "bert/"
_LAYERS_SCOPE = f"{ENCODER_SCOPE}encoder/transformer/"
#: Of a checkpoint, these may be fewer than the model's.
POSITIONS = f"{ENCODER_SCOPE}embeddings/position_embeddings"
#: What an encoder may lack: Hugging Face's models of all tasks that look at single tokens (masked
#: LM, questions) are saved without.
POOLER = frozenset({"bert/pooler/dense/kernel", "bert/pooler/dense/bias"})

#: Groups of weights that layers share, singular and plural.
_GROUP_KINDS = {
    "group of attention weights": "groups of attention weights",
    "group of feed-forward weights": "groups of feed-forward weights",
    "inner group": "inner groups",
}


class Source(abc.ABC):
    """Weights by official name, with their configuration and tokenizer, read when asked for.

    Attributes:
      location: what was found: a checkpoint's name or a folder, for messages.
      shapes: shape by official name; what has no official name keeps its own.
      state: the source's names of what is no weight: optimizer slots, step, copies of tied weights.
    """

    location: str
    shapes: Mapping[str, Sequence[int]]
    state: Sequence[str]

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """The weight of that name in `shapes`, in its official orientation."""

    @abc.abstractmethod
    def config(self) -> AlbertConfig | None:
        """The configuration that lies with the weights; None if there is none."""

    @abc.abstractmethod
    def tokenizer(self, lower_case: bool | None = None) -> Tokenizer | None:
        """The tokenizer that lies with the weights; None if there is none.

        Args:
          lower_case: see Tokenizer.from_file; None: as the source says.
        """

    def pass_over(self, error: Exception) -> None:
        """Goes on to another copy of the weights, after an error on reading these.

        Raises:
          AlbertError: there is none.
        """
        if isinstance(error, AlbertError):
            raise error
        raise AlbertError(
            f"The checkpoint {self.location} cannot be read: {first_line(error)}."
        ) from error


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What `assign_weights` found: names by outcome.

    Names in `missing` tell both shapes if it is the shape that does not fit. `repeated` tells how
    many positions the checkpoint has, if the model has more; see `repeat_positions`.
    """

    checkpoint: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    state: tuple[str, ...] = ()
    repeated: int | None = None

    @property
    def missing_of_encoder(self) -> list[str]:
        """Names in `missing` without which a source is no encoder: all but heads and pooler."""
        return [n for n in self.missing if n.startswith(ENCODER_SCOPE) and n not in POOLER]

    @property
    def unexpected_of_encoder(self) -> list[str]:
        """Names in `unexpected` of the source's layers, which the model would leave out."""
        return [n for n in self.unexpected if n.startswith(_LAYERS_SCOPE)]

    @property
    def difference_in_groups(self) -> str:
        """How the checkpoint's groups of shared weights differ from the model's; "" if not."""
        other_shape = [n.split(" ")[0] for n in self.missing if " " in n]
        there = _groups([*self.matched, *self.unexpected, *other_shape])
        here = _groups([*self.matched, *(n.split(" ")[0] for n in self.missing)])
        differences = [
            f"{there[kind]} {kind if there[kind] == 1 else plural} (the model {here[kind]})"
            for kind, plural in _GROUP_KINDS.items()
            if there[kind] != here[kind]
        ]
        return f"it has {' and '.join(differences)}" if differences else ""

    def __str__(self) -> str:
        """A few lines for the terminal."""
        lines = [f"Weights from {self.checkpoint}: {len(self.matched)} variables matched"]
        for what, names in (
            ("not in the checkpoint, left at random", self.missing),
            ("in the checkpoint, not in the model", self.unexpected),
        ):
            if names:
                shown = f"{what}: {', '.join(_by_scope(names))}"
                indent = {"initial_indent": "  ", "subsequent_indent": "    "}
                lines += textwrap.wrap(shown, 78, break_on_hyphens=False, **indent)
        if self.repeated:
            lines.append(f"  positions from {self.repeated} on repeat the checkpoint's")
        return "\n".join(lines)


def _groups(names: Sequence[str]) -> dict[str, int]:
    """How many groups of each kind variables of these names belong to."""
    parts = [
        tuple(n[len(_LAYERS_SCOPE) :].split("/")[:3]) for n in names if n.startswith(_LAYERS_SCOPE)
    ]
    parts = [part for part in parts if len(part) == 3]
    attention, feed_forward, inner = _GROUP_KINDS
    return {
        attention: len({group for group, _, part in parts if part.startswith("attention")}),
        feed_forward: len({group for group, _, part in parts if part.startswith("ffn")}),
        inner: len({block for _, block, _ in parts}),
    }


def _by_scope(names: Sequence[str]) -> list[str]:
    """Names, those of a common scope (two levels) taken together where they are many."""
    scopes = collections.Counter("/".join(name.split("/")[:2]) for name in names)
    grouped = {
        name: f"{scope}/* ({scopes[scope]})" if scopes[scope] > 2 else name
        for name in names
        for scope in ["/".join(name.split("/")[:2])]
    }
    return list(dict.fromkeys(grouped.values()))


def assign_weights(source: Source, named_weights: Mapping[str, tf.Variable]) -> LoadReport:
    """Assigns to every variable the source's weight of the same name and shape.

    A model for longer sequences repeats the source's positions; see `repeat_positions`. Of a run's
    checkpoints, the damaged ones are passed over.

    Raises:
      AlbertError: the source cannot be read.
    """
    while True:
        try:
            return _assign(source, named_weights)
        except (DamagedError, IndexError, OSError, ValueError, tf.errors.OpError) as error:
            # IndexError: the data of a TensorFlow checkpoint is cut off.
            source.pass_over(error)


def _assign(source: Source, named_weights: Mapping[str, tf.Variable]) -> LoadReport:
    left = dict(source.shapes)
    matched, missing, repeated = [], [], None
    for name, variable in named_weights.items():
        shape, wanted = left.pop(name, None), variable.shape.as_list()
        shape = None if shape is None else list(shape)
        if shape == wanted:
            variable.assign(source.read(name))
            matched.append(name)
        elif name == POSITIONS and shape and 2 < shape[0] < wanted[0] and shape[1:] == wanted[1:]:
            repeated = shape[0]
            variable.assign(repeat_positions(source.read(name), wanted[0]))
            matched.append(name)
        else:
            note = "" if shape is None else f" (shape {shape}, not {wanted})"
            missing.append(name + note)
    names = (tuple(matched), tuple(missing), tuple(sorted(left)), tuple(source.state))
    return LoadReport(source.location, *names, repeated)


def repeat_positions(embeddings: np.ndarray, number: int) -> np.ndarray:
    """Embeddings for longer sequences than they were trained on.

    Those between the first, where [CLS] is, and the last, where [SEP] often is, are repeated, much
    as Longformer's were made of RoBERTa's (Beltagy et al., 2020, section 5). Attention to
    neighbours, which takes long to learn and is quicker learned on short sequences, then works at
    all positions from the first step.

    Args:
      embeddings: float [n, E], n > 2.
      number: of positions, at least n.

    Returns:
      [number, E].
    """
    rows, trained = np.arange(number), len(embeddings)
    return embeddings[np.where(rows < trained, rows, 1 + (rows - trained) % (trained - 2))]


def find_beside(checkpoint: str, name: str) -> str | None:
    """A file that lies with a checkpoint; None if there is none.

    Args:
      checkpoint: an output directory, a folder of checkpoints in it, or a checkpoint's name.
      name: of the file.
    """
    folder = checkpoint
    for _ in range(3):
        if not folder:
            return None
        path = os.path.join(folder, name)
        if tf.io.gfile.exists(path):
            return path
        folder = os.path.dirname(folder)
    return None


def find_only(folder: str, *patterns: str) -> str | None:
    """The file that matches the first pattern with matches; None if there is none or several."""
    for pattern in patterns:
        found = tf.io.gfile.glob(os.path.join(folder, pattern))
        if found:
            return found[0] if len(found) == 1 else None
    return None


def open_tokenizer(path: str | None, lower_case: bool | None) -> Tokenizer | None:
    """Tokenizer.from_file, or None for no path."""
    return Tokenizer.from_file(path, lower_case) if path else None


def first_line(error: Exception) -> str:
    """The first line of an error's message, without TensorFlow's names of nodes, for a sentence."""
    text = re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]", "", str(error).strip())
    return (text.splitlines() or [type(error).__name__])[0][:200]
