# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Opens pretraining records, masked or compact, and checks that they suit the model."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping

from albert_tf.config import AlbertConfig
from albert_tf.data import records
from albert_tf.data.manifest import COMPACT_PRETRAINING, Manifest, find_manifest, find_shards
from albert_tf.data.masking import Masking
from albert_tf.data.masking_options import MASKING_OPTIONS, MaskingOptions
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.record_files import infer_features
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.settings import check_integer
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer

#: Sequences are not shortened further.
_SHORTEST = 8


def open_records(
    patterns: str,
    config: AlbertConfig,
    *,
    max_seq_length: int | None = None,
    seed: int = 12345,
    held_out: bool = False,
    **masks: float | None,
) -> RecordSource:
    """Opens pretraining records and checks that the model can read them.

    Compact records are masked by the options in their manifest.

    Args:
      patterns: comma list of shards, globs or folders with a manifest.
      config: configuration of the model.
      max_seq_length: what the records must have; None accepts any. Compact records may be longer,
        and are shortened; see Masking.
      seed: seed of the training order and of dynamic masks.
      held_out: put the shards in the order of their paths, so that "a,b" and "b,a" are evaluated
        alike; the order of training follows `patterns`.
      **masks: `masked_lm_prob` and `ngram`, for compact records, where they are not None and differ
        from those in their manifest.

    Raises:
      AlbertError: there are no such files, they do not hold pretraining records, or the records
        disagree with the model or with what is expected.
    """
    paths = find_shards(patterns)
    paths = sorted(paths) if held_out else paths
    manifest = find_manifest(paths)
    features = manifest.features if manifest else infer_features(paths[0])
    if manifest is not None:
        vocab_size = manifest.tokenizer_value("vocab_size", int)
        if not config.has_rows_of(vocab_size):
            raise AlbertError(
                f"The records {patterns} use a vocabulary of {vocab_size} pieces, but the model "
                f"has vocab_size={config.vocab_size}; build them with the model's tokenizer."
            )
    masks = {name: value for name, value in masks.items() if value is not None}
    masking = None
    if manifest is not None and manifest.kind == COMPACT_PRETRAINING:
        if max_seq_length is not None:
            check_integer("`max_seq_length`", max_seq_length, _SHORTEST)
        masking = _dynamic_masking(os.path.dirname(paths[0]), manifest, max_seq_length, masks)
    elif masks:
        raise AlbertError(
            f"The records {patterns} are masked already, so `{next(iter(masks))}` cannot be "
            "changed; leave it out, or build them with --record_format=compact."
        )
    else:
        lists = (_list_length(features, name) for name in ("input_ids", "masked_lm_positions"))
        features = records.pretraining_features(*lists)
        del features["token_boundary"]  # The builder's record of word starts; no model reads it.
    source = RecordSource(paths, features, seed, masking=masking, vocab_size=config.vocab_size)
    length = sequence_length(source)
    if max_seq_length not in (None, length):
        raise AlbertError(
            f"The records {patterns} have max_seq_length={length}, not {max_seq_length}; leave out "
            "`max_seq_length` to take it from the records."
        )
    config.check_length(length)
    return source


def sequence_length(source: RecordSource) -> int:
    """Returns the length of the sequences in the batches."""
    return source.masking.length if source.masking else _list_length(source.features, "input_ids")


def check_held_out(train_patterns: str, eval_patterns: str) -> None:
    """Raises AlbertError if training and evaluation share a shard, or the content of one."""
    train, held_out = map(find_shards, (train_patterns, eval_patterns))
    common = files.common_files(train, held_out)
    if not common:
        first, second = (m.shards if (m := find_manifest(x)) else () for x in (train, held_out))
        digests = {shard.sha256 for shard in first if shard.blocks}
        common = [shard.name for shard in second if shard.sha256 in digests]
    if common:
        raise AlbertError(
            f"{common[0]} is in `input_file` and in `eval_input_file`; evaluate on other text."
        )


def _list_length(features: records.Features, name: str) -> int:
    """Returns the length of a list in the records."""
    shape = features[name].shape if name in features else ()
    if len(shape) != 1:
        raise AlbertError(f"The records' layout has no list {name!r} of a fixed length.")
    return shape[0]


def _dynamic_masking(
    folder: str, manifest: Manifest, length: int | None, masks: Mapping[str, float]
) -> Masking:
    """Returns the masking of compact records; for the arguments, see `open_records`."""
    stored = _list_length(manifest.features, "text_ids")
    vocab_size = manifest.tokenizer_value("vocab_size", int)
    if manifest.features != records.compact_features(stored, vocab_size):
        raise AlbertError("The layout in manifest.json is not that of compact records.")
    values = {name: manifest.options.get(name) for name in MASKING_OPTIONS}
    try:
        options = from_json(MaskingOptions, values, "a wrong type")
        check_integer("`max_predictions_per_seq`", options.max_predictions_per_seq, most=stored)
    except AlbertError as error:
        raise AlbertError(
            "The masking options in the records' manifest.json are not valid: "
            f"{error} Build the records again."
        ) from error
    options = dataclasses.replace(options, **masks)
    if "masked_lm_prob" in masks:
        predictions = math.ceil(options.masked_lm_prob * stored)
        options = dataclasses.replace(options, max_predictions_per_seq=predictions)
    path = os.path.join(folder, SPEC_FILE)
    tokenizer = Tokenizer.from_file(path)
    if tokenizer.spec.sha256 != manifest.tokenizer_value("sha256", str):
        raise AlbertError(
            f"{path} is not the tokenizer of these records; put that one back, or build the "
            "records again."
        )
    swap = manifest.options.get("sentence_objective") == "sop"
    shorter = min(stored, length) if length else None
    return Masking(manifest.features, options, tokenizer, swap, shorter)
