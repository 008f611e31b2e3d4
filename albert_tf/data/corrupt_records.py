# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds corrupt records by reading all of them, and replaces each by another record.

The position in the data is a function of (seed, epoch, position), so a corrupt record must not move
the others. If the n-th record of a shard with g good records is corrupt, the good record number
(n mod g) is read in its place. This depends on the shard alone, so a run resumes exactly.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from albert_tf.data.framing import Frame
from albert_tf.data.record_faults import ShardScan, scan_shard
from albert_tf.data.records import Features, ShardInfo
from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress

#: Faults that an error lists.
_MAX_LISTED = 5
ADVICE = (
    "build or copy the shard again (run_pretraining.py --max_corrupt_records=N passes over a few "
    "records)"
)


@dataclasses.dataclass(frozen=True)
class RepairedShard:
    """How to read a shard: counts[i] records from byte offsets[i] on, for each i.

    Attributes:
      path: of the shard.
      records: how many it has, including the corrupt ones.
      faults: of the corrupt records; of those lost at the end of the file, the first one only.
      corrupt: int64: numbers of all corrupt records, including the lost ones.
      offsets: int64 [pieces].
      counts: int64 [pieces]. A piece ends where its section ends, or before.
    """

    path: str
    records: int
    faults: Sequence[Frame]
    corrupt: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray


def find_corrupt_records(
    paths: Sequence[str],
    listed: Sequence[ShardInfo] | None,
    features: Features,
    vocab_size: int | None,
    limit: int,
) -> list[RepairedShard]:
    """Reads all records and finds those that are damaged or have impossible numbers.

    data_prep/verify_records.py also compares them with the tokenizer and their manifest.

    Args:
      paths: of the shards.
      listed: the shards as described by their manifest; None without a manifest.
      features: the records' layout.
      vocab_size: limit of the ids; None: no limit.
      limit: how many records may be corrupt.

    Raises:
      AlbertError: more records are corrupt, or they cannot be replaced.
    """
    shards = []
    with (
        Progress("checking records", len(paths), "shards") as progress,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
    ):
        scans = pool.map(lambda path: scan_shard(path, features, vocab_size=vocab_size), paths)
        for path, scan, info in zip(paths, scans, listed or [None] * len(paths)):
            shards.append(_repair(path, scan, info))
            progress.update(1)
    corrupt = sum(len(shard.corrupt) for shard in shards)
    if corrupt > limit:
        total = sum(shard.records for shard in shards)
        raise AlbertError(
            f"{corrupt:,} of {total:,} records are corrupt, which is more than "
            f"`max_corrupt_records`={limit}: {list_faults(shards)}; build or copy the shards again."
        )
    return shards


def list_faults(shards: Sequence[RepairedShard]) -> str:
    """Returns the first faults as part of a sentence."""
    places = [fault.place(shard.path) for shard in shards for fault in shard.faults]
    more = len(places) - _MAX_LISTED
    return "; ".join(places[:_MAX_LISTED]) + (f"; and {more:,} more" if more > 0 else "")


def _repair(path: str, scan: ShardScan, info: ShardInfo | None) -> RepairedShard:
    """Decides which record is read in the place of each corrupt one."""
    present = len(scan.offsets)
    if info is None and scan.cut_off:
        raise AlbertError(
            f"{scan.faults[-1].place(path)}, and without a manifest.json it is unknown how many "
            "records are lost; build or copy the shard again."
        )
    expected = info.examples if info else present
    if present > expected:
        raise AlbertError(
            f"{path} has {present} records, but its manifest says {expected}; it is not the "
            "same file."
        )
    faults = list(scan.faults)
    if present < expected and not scan.cut_off:
        faults.append(Frame(present, -1, None, "the file ends before it"))
    is_good = np.arange(expected) < present
    is_good[[fault.number for fault in faults if fault.number < present]] = False
    good, corrupt = np.flatnonzero(is_good), np.flatnonzero(~is_good)
    if expected and not len(good):
        raise AlbertError(f"No record of {path} can be read; {ADVICE}.")
    read = np.arange(expected)
    read[corrupt] = good[corrupt % max(len(good), 1)]
    # A piece ends before a record that does not follow in the file, and with its section.
    starts = np.flatnonzero(np.diff(read, prepend=-2) != 1)
    section_ends = np.cumsum([section.examples for section in info.sections] if info else [])
    starts = np.union1d(starts, section_ends[:-1]).astype(np.int64)
    counts = np.diff(starts, append=expected)
    return RepairedShard(path, expected, faults, corrupt, scan.offsets[read[starts]], counts)
