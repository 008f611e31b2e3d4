# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Token sequences in memory, and batches of those with similar lengths."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data.context import DataSource, InputContext
from albert_tf.io.progress import Progress
from albert_tf.settings import check_integer

#: Number of training batches that are sorted by length together.
CHUNK_BATCHES = 64
#: Padding of numbers for each token.
NO_NUMBER = -1
#: Most pieces and most sequences of a batch of `length_batches`.
_MAX_PIECES = 16384
_MAX_ROWS = 256
#: Lengths that batches are padded to: few where XLA compiles the whole model for each of them, and
#: otherwise close to each other, as padding costs time: multiples of 2 up to 32, of 4 up to 64, ….
_FEW_LENGTHS = (16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384)
_LENGTHS = (
    *range(4, 32, 2),
    *range(32, 64, 4),
    *range(64, 128, 8),
    *range(128, 256, 16),
    *range(256, 512, 32),
)


def length_buckets(
    max_seq_length: int, *, pad_to_max: bool = False, few: bool = False
) -> tuple[int, ...]:
    """Returns the lengths to pad batches to, in ascending order.

    `pad_to_max` leaves only the last one, as on TPUs; `few` a few, for a model that is compiled for
    each.
    """
    shorter = () if pad_to_max else _FEW_LENGTHS if few else _LENGTHS
    return (*(n for n in shorter if n < max_seq_length), max_seq_length)


def length_batches(
    lengths: Sequence[int], label: str, batch_size: int | None = None
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields batches of sequences, the longest first, and shows progress.

    The lengths are in pieces; `label` names the work in the progress. Without a `batch_size`,
    batches have as many sequences as usual computers hold.

    Raises:
      AlbertError: the batch size is not a positive integer.

    Yields:
      The numbers of a batch's sequences, int64 [rows], and the length to pad them to, one of
      `length_buckets`. Each sequence is in one batch.
    """
    if batch_size is not None:
        batch_size = check_integer("`batch_size`", batch_size)
    if not len(lengths):
        return
    buckets = np.array(length_buckets(max(lengths)))
    padded = buckets[np.searchsorted(buckets, lengths)]
    order = np.argsort(-padded, kind="stable")
    with Progress(label, len(lengths), "sequences") as progress:
        while len(order):
            length = int(padded[order[0]])
            size = batch_size or min(_MAX_ROWS, max(1, _MAX_PIECES // length))
            yield order[:size], length
            progress.update(len(order[:size]))
            order = order[size:]


class Sequences(DataSource):
    """The token sequences of n examples, without padding, and other numbers of each example.

    A batch has `input_word_ids`, `input_mask` and `input_type_ids`, int32 [batch, length], or with
    `group` [batch, group, length]; the columns, [batch, ...]; and the token columns, int32, of the
    same shape as the ids.

    Args:
      sequences: one for each example, or `group` for each, one after the other: the ids of
        [CLS] A [SEP] or [CLS] A [SEP] B [SEP], of any length, and the length of [CLS] A [SEP]. Ids
        are kept in 16 bits if they fit.
      pad_id: the id of the padding piece.
      columns: int, float or bool [n, ...], such as labels; become int32, float32 or stay bool.
      token_columns: for each sequence, integers for its tokens; padded with NO_NUMBER.
      group: number of sequences of each example; None: one, without an axis for it.

    Attributes:
      num_examples: n.
      longest: the length of the longest sequence of each example, int64 [n].
      mean_length: of all sequences.
      lengths: ascending lengths to pad batches to, from `length_buckets`.
      seed: of the training order.
    """

    def __init__(
        self,
        sequences: Iterable[tuple[Sequence[int], int]],
        pad_id: int,
        columns: Mapping[str, np.ndarray] | None = None,
        token_columns: Mapping[str, Iterable[Sequence[int]]] | None = None,
        group: int | None = None,
    ) -> None:
        columns = {k: _column(np.asarray(v)) for k, v in (columns or {}).items()}
        digest = hashlib.sha256(repr([group, *columns]).encode())
        parts, first = [], []
        for ids, length in sequences:  # Large data sets are in memory at most twice, in 16 bits.
            digest.update(ids := np.asarray(ids, np.int32))
            parts.append(ids.astype(np.uint16) if ids.max() < 1 << 16 else ids)
            first.append(length)
        sizes, first = np.array([*map(len, parts)]), np.array(first)
        tokens = {"input_word_ids": np.concatenate(parts)}
        for name, values in (token_columns or {}).items():
            tokens[name] = np.concatenate([np.asarray(row, np.int32) for row in values])
            digest.update(tokens[name])
        self._group = group
        self.longest = sizes.reshape(-1, group or 1).max(axis=1)
        self.num_examples, self.mean_length = len(self.longest), float(sizes.mean())
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        for array in (bounds, first, *columns.values()):
            digest.update(np.ascontiguousarray(array))
        self._digest = digest.hexdigest()
        self.description = {"examples": self.num_examples, "mean_length": self.mean_length}
        self.lengths, self.seed = length_buckets(int(self.longest.max())), 0
        self._pads = dict.fromkeys(tokens, NO_NUMBER) | {"input_word_ids": pad_id}
        arrays = {"tokens": tokens, "columns": columns, "bounds": bounds, "first": first}
        arrays["longest"] = self.longest

        # Only when they are needed: a cluster or a TPU must be joined before all tensors.
        @functools.cache
        def tensors() -> dict[str, Any]:
            with tf.device("CPU:0"), tf.init_scope():
                made = tf.nest.map_structure(tf.constant, arrays)
            arrays.clear()  # The ids of large data sets should not be in memory twice.
            return made

        self._tensors = tensors

    @property
    def fingerprint(self) -> str:
        """Identifies the data and the batches that they make, except for the seed."""
        return "-".join([self._digest, *map(str, self.lengths)])

    def batch(self, examples: Sequence[int], length: int) -> dict[str, tf.Tensor]:
        """Returns a batch of examples, int [batch], padded to a length."""
        # In one call: single operations would take longer than a small model.
        with tf.device("CPU:0"):
            examples, length = tf.constant(examples, tf.int64), tf.constant(length, tf.int64)
            return _batch_function(self._tensors(), examples, length, self._pads, self._group)

    def _training(self, context: InputContext) -> tf.data.Dataset:
        """Yields training batches.

        Each epoch has its own random order, a function of (seed, epoch). Chunks of CHUNK_BATCHES
        batches are sorted by length and cut into batches, whose order is a function of (seed,
        chunk). So a reader can start at any step.
        """
        shuffle = tf.random.experimental.stateless_shuffle
        keys = [tf.constant([self.seed, purpose], tf.int64) for purpose in range(2)]
        first_chunk, batches_before = divmod(context.start_step, CHUNK_BATCHES)
        chunk = context.batch_size * CHUNK_BATCHES
        first_epoch, offset = divmod(first_chunk * chunk, self.num_examples)

        def epoch_order(epoch) -> tf.Tensor:
            key = tf.random.experimental.stateless_fold_in(keys[0], epoch)
            order = shuffle(tf.range(self.num_examples, dtype=tf.int64), key)
            return order[tf.where(epoch == first_epoch, offset, 0) :]

        def batches(number, examples) -> tf.data.Dataset:
            key = tf.random.experimental.stateless_fold_in(keys[1], number)
            order = shuffle(tf.range(CHUNK_BATCHES), key)
            cut = self._by_length(examples, context.batch_size)
            return tf.data.Dataset.from_tensor_slices(tuple(tf.gather(x, order) for x in cut))

        dataset = tf.data.Dataset.range(first_epoch, tf.int64.max).map(epoch_order)
        dataset = dataset.rebatch(chunk, drop_remainder=True).enumerate(first_chunk)
        dataset = dataset.flat_map(batches).skip(batches_before)
        return self._padded(dataset, context)

    def _evaluation(self, context: InputContext) -> tf.data.Dataset:
        """Yields every example once, in batches of similar lengths."""
        numbers = np.arange(self.num_batches(context.batch_size) * context.batch_size)
        numbers[self.num_examples :] = -1
        cut = self._by_length(tf.constant(numbers, tf.int64), context.batch_size)
        return self._padded(tf.data.Dataset.from_tensor_slices(cut), context, index=True)

    def _by_length(self, examples: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Sorts examples by length and cuts them into batches.

        Returns:
          The examples of each batch, int64 [batches, size], and the length to pad it to.
        """
        longest = tf.gather(self._tensors()["longest"], tf.maximum(examples, 0))
        buckets = tf.searchsorted(tf.constant(self.lengths, tf.int64), longest)
        order = tf.argsort(buckets, stable=True)  # Examples of a bucket stay in random order.
        last = tf.gather(buckets, order)[size - 1 :: size]
        return tf.reshape(tf.gather(examples, order), [-1, size]), tf.gather(self.lengths, last)

    def _padded(
        self,
        batches: tf.data.Dataset,
        context: InputContext,
        index: bool = False,
    ) -> tf.data.Dataset:
        """Makes the rows of this pipeline; with `index`, the numbers of the examples, too."""
        tensors = self._tensors()

        def make(examples, length) -> dict[str, tf.Tensor]:
            examples = tf.ensure_shape(examples[context.row_slice], [context.rows])
            if len(self.lengths) == 1:
                length = self.lengths[0]  # So that the shape is static.
            known = tf.maximum(examples, 0)
            made = _batch(tensors, known, length, self._pads, self._group)
            return {**made, "example_index": tf.cast(examples, tf.int32)} if index else made

        return batches.map(make, num_parallel_calls=tf.data.AUTOTUNE)


def _batch(
    tensors: Mapping[str, Any],
    examples: tf.Tensor,
    length: tf.Tensor | int,
    pads: Mapping[str, int],
    group: int | None,
) -> dict[str, tf.Tensor]:
    """Returns a batch of examples, int64 [batch]; see Sequences."""
    rows, bounds, first = examples, tensors["bounds"], tensors["first"]
    if group:
        rows = rows[:, None] * group + tf.range(group, dtype=tf.int64)
    begins, ends = tf.gather(bounds, rows)[..., None], tf.gather(bounds, rows + 1)[..., None]
    position = tf.range(tf.cast(length, tf.int64))
    present = position < ends - begins
    place = tf.where(present, begins + position, 0)
    is_second = present & (position >= tf.gather(first, rows)[..., None])
    tokens = {
        name: tf.where(present, tf.cast(tf.gather(values, place), tf.int32), pads[name])
        for name, values in tensors["tokens"].items()
    }
    return {
        **tokens,
        "input_mask": tf.cast(present, tf.int32),
        "input_type_ids": tf.cast(is_second, tf.int32),
        **{name: tf.gather(values, examples) for name, values in tensors["columns"].items()},
    }


_batch_function = tf.function(_batch, autograph=False, reduce_retracing=True)


def _column(values: np.ndarray) -> np.ndarray:
    kinds = {"f": np.float32, "b": bool}
    return values.astype(kinds.get(values.dtype.kind, np.int32))
