# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Source: a pretrained model on disk, in any format; and its assignment to a model by name."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import os
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError, DamagedError, DivergedError, first_line, printable
from albert_tf.io import storage
from albert_tf.tokenization.tokenizer import Tokenizer

#: The scope of all variables of the encoder.
ENCODER_SCOPE = "bert/"
_LAYERS_SCOPE = f"{ENCODER_SCOPE}encoder/transformer/"
#: A checkpoint may have fewer of these than the model.
POSITIONS = f"{ENCODER_SCOPE}embeddings/position_embeddings"
#: An encoder may lack these: Hugging Face saves models for token-level tasks (masked LM, question
#: answering) without a pooler.
POOLER = frozenset({"bert/pooler/dense/kernel", "bert/pooler/dense/bias"})
#: A masked LM may lack these; Hugging Face's published ALBERTs are masked LMs.
SENTENCE_ORDER = frozenset(
    {"cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"}
)
#: Parameters that a model may always have, whatever the size of its weights' files.
_SMALL_MODEL = 1 << 26


class Source(abc.ABC):
    """Weights by official name, with their configuration and tokenizer, read on demand.

    Attributes:
      location: a checkpoint's name or a folder, for messages.
      _path: what the source was opened with, without searching it.
      shapes: shape by official name; weights without an official name keep their own.
      state: the source's names of other contents: optimizer slots, step, copies of tied weights.
    """

    location: str
    _path: str
    shapes: Mapping[str, Sequence[int]]
    state: Sequence[str]

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Returns the weight with that name in `shapes`, in its official orientation."""

    def config(self) -> AlbertConfig | None:
        """Returns the configuration beside the weights, None if there is none.

        Raises:
          AlbertError: it is malformed, or describes a much larger model than the weights, so that
            building the model could take all memory.
        """
        config = self._read_config()
        if config:
            wanted, stored = config.count_parameters()["encoder"], self._stored_bytes()
            if wanted > max(_SMALL_MODEL, 4 * stored):
                raise AlbertError(
                    f"The configuration of {self._path} describes a model of {wanted:.1e} "
                    f"parameters, but its weights have {stored:,} bytes; get both again."
                )
        return config

    @abc.abstractmethod
    def _read_config(self) -> AlbertConfig | None:
        """Reads the configuration beside the weights, None if there is none."""

    @abc.abstractmethod
    def _stored_bytes(self) -> int:
        """Returns the size of the files with the weights."""

    @abc.abstractmethod
    def tokenizer(self, lower_case: bool | None = None) -> Tokenizer | None:
        """Returns the tokenizer beside the weights, None if there is none.

        Args:
          lower_case: see Tokenizer.from_file; None for the source's own setting.
        """


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of `assign_weights`: names by outcome.

    Names in `missing` include both shapes if the shapes differ. `repeated` is the number of the
    checkpoint's positions, if the model has more; see `repeat_positions`.
    """

    checkpoint: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    state: tuple[str, ...] = ()
    repeated: int | None = None

    @property
    def missing_of_encoder(self) -> list[str]:
        """Names in `missing` of the encoder's weights, without the pooler."""
        return [n for n in self.missing if n.startswith(ENCODER_SCOPE) and n not in POOLER]

    @property
    def unexpected_of_encoder(self) -> list[str]:
        """Names in `unexpected` of layers that the model does not have."""
        return [n for n in self.unexpected if n.startswith(_LAYERS_SCOPE)]

    @property
    def difference_in_groups(self) -> str:
        """Describes how groups of shared weights differ from the model's; "" if they do not."""
        other_shape = [n.split(" ")[0] for n in self.missing if " " in n]
        in_checkpoint = _count_groups([*self.matched, *self.unexpected, *other_shape])
        in_model = _count_groups([*self.matched, *(n.split(" ")[0] for n in self.missing)])
        differences = [
            f"{count} {kind.format('group' if count == 1 else 'groups')} (the model {ours})"
            for (kind, count), ours in zip(in_checkpoint.items(), in_model.values())
            if count != ours
        ]
        return f"it has {' and '.join(differences)}" if differences else ""

    @property
    def positions_note(self) -> str:
        """Says which positions are repeated ones."""
        return f"positions from {self.repeated} on repeat the checkpoint's"

    def __str__(self) -> str:
        """A few lines for the terminal."""
        lines = [f"Weights from {self.checkpoint}: {len(self.matched)} variables matched"]
        for what, names in (
            ("not in the checkpoint, left at random", self.missing),
            ("in the checkpoint, not in the model", self.unexpected),
        ):
            if names:
                shown = printable(f"{what}: {', '.join(_by_scope(names))}")
                indent = {"initial_indent": "  ", "subsequent_indent": "    "}
                lines += textwrap.wrap(shown, 78, break_on_hyphens=False, **indent)
        if self.repeated:
            lines.append(f"  {self.positions_note}")
        return "\n".join(lines)


def _count_groups(names: Sequence[str]) -> dict[str, int]:
    """Returns the numbers of groups that variables with these names belong to."""
    paths = [n[len(_LAYERS_SCOPE) :].split("/") for n in names if n.startswith(_LAYERS_SCOPE)]
    parts = [path[:3] for path in paths if len(path) >= 3]
    return {
        "{} of attention weights": len({g for g, _, part in parts if part.startswith("attention")}),
        "{} of feed-forward weights": len({g for g, _, part in parts if part.startswith("ffn")}),
        "inner {}": len({inner for _, inner, _ in parts}),
    }


def _by_scope(names: Sequence[str]) -> list[str]:
    """Returns names, with those of a common scope (two levels) merged if there are many."""
    scopes = ["/".join(name.split("/")[:2]) for name in names]
    counts = collections.Counter(scopes)
    return list(
        dict.fromkeys(
            f"{scope}/* ({counts[scope]})" if counts[scope] > 2 else name
            for name, scope in zip(names, scopes)
        )
    )


def assign_weights(source: Source, named_weights: Mapping[str, tf.Variable]) -> LoadReport:
    """Assigns to every variable the source's weight with the same name and shape.

    A model for longer sequences repeats the source's positions; see `repeat_positions`.

    Raises:
      DivergedError: a weight is not finite.
      AlbertError: the source is damaged or cannot be read, or a weight is not a float tensor.
    """
    try:
        return _assign(source, named_weights)
    except DamagedError as error:
        raise DamagedError(f"{error} Get it again, or name another checkpoint.") from error
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise AlbertError(
            f"The checkpoint {source.location} cannot be read: {first_line(error)}."
        ) from error


def _assign(source: Source, named_weights: Mapping[str, tf.Variable]) -> LoadReport:
    left = dict(source.shapes)
    matched, missing, repeated = [], [], None
    for name, variable in named_weights.items():
        shape, wanted = left.pop(name, None), variable.shape.as_list()
        shape = None if shape is None else list(shape)
        if shape == wanted:
            variable.assign(_read_finite(source, name))
            matched.append(name)
        elif name == POSITIONS and shape and 2 < shape[0] < wanted[0] and shape[1:] == wanted[1:]:
            repeated = shape[0]
            variable.assign(repeat_positions(_read_finite(source, name), wanted[0]))
            matched.append(name)
        else:
            note = "" if shape is None else f" (shape {shape}, not {wanted})"
            missing.append(name + note)
    names = (tuple(matched), tuple(missing), tuple(sorted(left)), tuple(source.state))
    return LoadReport(source.location, *names, repeated)


def _read_finite(source: Source, name: str) -> np.ndarray:
    """Returns a weight as float32."""
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
    takes long to learn, then works at all positions from the first step.

    Args:
      embeddings: float [n, E], n > 2.
      number: of positions, at least n.

    Returns:
      [number, E].
    """
    rows, trained = np.arange(number), len(embeddings)
    return embeddings[np.where(rows < trained, rows, 1 + (rows - trained) % (trained - 2))]


def bytes_in(folder: str, part: str) -> int:
    """Returns the size of the files in a folder whose names have this part; 0 without a folder."""
    size = 0
    for name in storage.listdir(folder):
        with contextlib.suppress(tf.errors.NotFoundError):  # A run deletes old checkpoints.
            size += storage.size(os.path.join(folder, name)) if part in name else 0
    return size


def open_tokenizer(path: str | None, lower_case: bool | None) -> Tokenizer | None:
    """Calls Tokenizer.from_file, or returns None if there is no path."""
    return Tokenizer.from_file(path, lower_case) if path else None
