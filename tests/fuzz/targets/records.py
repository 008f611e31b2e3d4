# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Records, their manifests, and what the builder keeps between its passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data import records, training_order
from albert_tf.data.context import InputContext
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.record_errors import data_errors
from albert_tf.tasks.pretraining.data import open_records
from tests.fuzz.targets.target import CONFIG, PIECES, Target, vocabulary


def _masked_columns(n: int) -> dict[str, np.ndarray]:
    row = {
        "input_ids": [2, 5, 4, 7, 3, 8, 4, 3, 0, 0],
        "input_mask": [1] * 8 + [0] * 2,
        "segment_ids": [0] * 5 + [1] * 3 + [0] * 2,
        "token_boundary": [1] * 8 + [0] * 2,
        "masked_lm_positions": [2, 6, 0],
        "masked_lm_ids": [6, 5, 0],
        "masked_lm_weights": [1.0, 1.0, 0.0],
        "next_sentence_labels": 1,
    }
    return {name: np.array([value] * n) for name, value in row.items()}


def _compact_columns(n: int) -> dict[str, object]:
    return {
        "text_ids": [np.array([5, 6, 7, 8, 9])] * n,
        "word_starts": [np.array([0b11111000], np.uint8)] * n,
        "segment_lengths": np.array([[2, 3]] * n),
    }


def _records(kind: str, with_manifest: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if kind == "masked":
            features, columns = records.pretraining_features(10, 3), _masked_columns(6)
        else:
            features, columns = records.compact_features(10, len(PIECES)), _compact_columns(6)
        path = folder / "shard.tfrecord"
        info = records.write_shard(str(path), records.encode_examples(columns, features))
        tokenizer = vocabulary(folder)
        tokenizer.save(str(folder))
        options = {
            "max_predictions_per_seq": 3,
            "masked_lm_prob": 0.15,
            "ngram": 3,
            "favor_shorter_ngram": True,
            "do_whole_word_mask": True,
            "sentence_objective": "sop",
        }
        if with_manifest:
            name = "pretraining" if kind == "masked" else "compact_pretraining"
            spec = tokenizer.spec.to_dict()
            Manifest(name, features, [info], spec, options, {"instances": 6}).save(str(folder))
        return path

    return make


def _manifest(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return _records(kind, True)(folder).with_name("manifest.json")

    return make


def _open_records(path: Path) -> RecordSource:
    config = AlbertConfig(**CONFIG)
    patterns = str(path.parent if (path.parent / "manifest.json").exists() else path)
    return open_records(patterns, config)


def _check_records(path: Path) -> None:
    source = _open_records(path)
    source.check()
    source.description  # noqa: B018


def _payload(kind: str) -> Callable[[Path], Path]:
    """A serialized example; the shard around it has the right checksums."""

    def make(folder: Path) -> Path:
        shard = _records(kind, True)(folder)
        path = folder / "example"
        path.write_bytes(next(records.read_examples(str(shard))))
        return path

    return make


#: By folder; building the input pipeline takes longer than reading two records.
_SOURCES: dict[Path, tuple[RecordSource, tf.data.Dataset]] = {}


def _check_payload(path: Path) -> None:
    shard = path.with_name("shard.tfrecord")
    if path.parent not in _SOURCES:
        source = _open_records(shard)
        # The check of lengths would refuse payloads of other sizes.
        with mock.patch.object(training_order, "check_lengths", lambda path, offset, size: size):
            _SOURCES[path.parent] = source, source.eval_input_fn(InputContext(2))
    source, batches = _SOURCES[path.parent]
    records.write_shard(str(shard), [path.read_bytes()] * 2)
    # As the Estimator reads it.
    with data_errors(source.eval_input_fn):
        for _ in batches:
            pass


TARGETS = {
    "masked records": Target(_records("masked", False), _check_records),
    "compact records": Target(_records("compact", True), _check_records),
    "manifest of masked records": Target(_manifest("masked"), _check_records, True),
    "manifest of compact records": Target(_manifest("compact"), _check_records, True),
    "payload of a masked record": Target(_payload("masked"), _check_payload),
    "payload of a compact record": Target(_payload("compact"), _check_payload),
}
