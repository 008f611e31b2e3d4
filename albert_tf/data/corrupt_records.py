# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Corrupt records of shards: found by reading everything once, and replaced where they are.

The position in the data is a function of (seed, epoch, position), so no record may move because
another is corrupt. In its place another one of its shard is read: of g good records, that of number
(n mod g) for the n-th record. Which it is depends on the shard alone, so a run resumes exactly.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from albert_tf.data.record_faults import Fault, ShardScan, scan_shard
from albert_tf.data.records import Features, ShardInfo
from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress

#: Faults that are named one by one.
_NAMED = 5
ADVICE = "build or copy the shard again (run_pretraining.py can pass over a few records: "
ADVICE += "--max_corrupt_records)"


@dataclasses.dataclass(frozen=True)
class RepairedShard:
    """How a shard is read: counts[i] records from byte offsets[i] on, for every i.

    Attributes:
      path: of the shard.
      records: how many there are, or should be.
      faults: of the corrupt ones; lost ones after the last are not listed one by one.
      corrupt: int64: numbers of all corrupt records, lost ones too.
      offsets: int64 [pieces].
      counts: int64 [pieces]. No piece goes beyond the end of a section.
    """

    path: str
    records: int
    faults: Sequence[Fault]
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
    """Reads all records; corrupt is what data_prep/verify_records.py finds faulty.

    Args:
      paths: of the shards.
      listed: what their manifest says of them; None without one.
      features: the records' layout.
      vocab_size: ids must be below; None: they may be any.
      limit: how many records may be corrupt.

    Raises:
      AlbertError: there are more, or they cannot be replaced.
    """
    shards = []
    with (
        Progress("checking records", len(paths), "shards") as progress,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
    ):
        scans = pool.map(lambda path: scan_shard(path, features, vocab_size=vocab_size), paths)
        for i, scan in enumerate(scans):
            shards.append(_repaired(paths[i], scan, listed[i] if listed else None))
            progress.update(1)
    corrupt = sum(len(shard.corrupt) for shard in shards)
    if corrupt > limit:
        total = sum(shard.records for shard in shards)
        raise AlbertError(
            f"{corrupt:,} of {total:,} records are corrupt, which is more than "
            f"--max_corrupt_records={limit}: {name_faults(shards)}; build or copy the shards again."
        )
    return shards


def name_faults(shards: Sequence[RepairedShard]) -> str:
    """Some of the faults, for a sentence."""
    places = [fault.place(shard.path) for shard in shards for fault in shard.faults]
    more = f"; and {len(places) - _NAMED:,} more" if len(places) > _NAMED else ""
    return "; ".join(places[:_NAMED]) + more


def _repaired(path: str, scan: ShardScan, listed: ShardInfo | None) -> RepairedShard:
    found = len(scan.offsets)
    expected = listed.examples if listed else found
    if listed is None and scan.cut_off:
        raise AlbertError(
            f"{scan.faults[-1].place(path)}, and without a manifest.json nobody knows how many "
            "records are lost; build or copy the shard again."
        )
    if found > expected:
        raise AlbertError(
            f"{path} has {found} records where its manifest says {expected}; it is another file."
        )
    faults = list(scan.faults)
    if found < expected and not scan.cut_off:
        faults.append(Fault(found, -1, "the file ends before it"))
    corrupt = np.array([fault.number for fault in faults if fault.number < found], np.int64)
    good = np.setdiff1d(np.arange(found), corrupt)
    corrupt = np.concatenate([corrupt, np.arange(found, expected)])
    if expected and not len(good):
        raise AlbertError(f"No record of {path} can be read; {ADVICE}.")
    read = np.arange(expected)
    read[corrupt] = good[corrupt % max(len(good), 1)]
    # A piece ends where the next record is not the one that follows in the file, or where a section
    # ends.
    starts = np.flatnonzero(np.diff(read, prepend=-2) != 1)
    sections = listed.sections if listed else ()
    ends = np.cumsum([section.examples for section in sections], dtype=np.int64)
    starts = np.union1d(starts, ends[:-1])
    counts = np.diff(starts, append=expected)
    return RepairedShard(path, expected, faults, corrupt, scan.offsets[read[starts]], counts)
