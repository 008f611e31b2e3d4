# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A build of pretraining records: tokenize the corpus once, then write the shards.

While a build runs, its output folder holds ``_build`` with the plan, the tokenized documents and
what is known of the finished shards. A build that was killed goes on from there.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.data.manifest import COMPACT_PRETRAINING, FILE_NAME, PRETRAINING, Manifest
from albert_tf.data.records import ShardInfo
from albert_tf.errors import AlbertError
from albert_tf.json_values import from_json
from albert_tf.progress import Progress, total_bytes
from albert_tf.tokenization import Tokenizer
from albert_tf.workers import Advance, Workers
from data_prep.documents import TokenBlock, read_blocks, split_documents, tokenize_block
from data_prep.pretraining_options import PretrainingOptions
from data_prep.pretraining_shards import Context, ShardTask, write_pretraining_shard
from data_prep.spill import SpillWriter

WORK_FOLDER = "_build"
DEFAULT_NUM_SHARDS = 10
#: Text in a bucket. All instances of a bucket, of all passes, are in memory as token ranges.
_BUCKET_BYTES = 1 << 23
#: Bytes of text in a stored byte, roughly; decides no more than the size of the buckets.
_EXPANSION = {".gz": 3, ".bz2": 4, ".xz": 4}


@dataclasses.dataclass(frozen=True)
class TokenizerSource:
    """Where the tokenizer is; see Tokenizer.from_file."""

    path: str
    lower_case: bool | None = None

    def load(self) -> Tokenizer:
        """Loads the tokenizer."""
        return Tokenizer.from_file(self.path, self.lower_case)


@dataclasses.dataclass(frozen=True)
class Output:
    """Where the records go.

    Attributes:
      folder: holds the shards, the manifest, the tokenizer and, while building, `_build`.
      num_shards: number of shards; None: ten, or fewer for a small corpus.
      names: the shards' base names instead of the usual ones.
    """

    folder: str
    num_shards: int | None = None
    names: Sequence[str] = ()

    @property
    def wanted_shards(self) -> int | None:
        """The number of shards asked for."""
        return len(self.names) or self.num_shards

    def paths(self, num_shards: int) -> list[str]:
        """Paths of the shards."""
        names = self.names or [
            f"pretraining-{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)
        ]
        return [os.path.join(self.folder, name) for name in names]


def build_pretraining_data(
    input_files: Sequence[str],
    tokenizer_source: TokenizerSource,
    output: Output,
    options: PretrainingOptions,
    num_workers: int = 1,
) -> Manifest:
    """Builds the records of a corpus; returns their manifest.

    The shards depend on the text, the tokenizer, the options and the number of shards, not on the
    number of workers. A folder whose manifest shows that just these records are complete is left
    alone; an unfinished build of the same is continued.

    Args:
      input_files: text, one sentence a line, a blank line between documents.
      tokenizer_source: where the tokenizer is.
      output: where the records go.
      options: what the records are.
      num_workers: processes.

    Raises:
      AlbertError: bad input, an output folder with other records, a failed worker, or a corpus
        that gives no instance.
    """
    tokenizer = tokenizer_source.load()
    plan = _plan(input_files, tokenizer, output, options)
    finished = _finished_manifest(output.folder, plan)
    if finished:
        return finished
    build = _Build(plan, output, options)
    with Workers(num_workers, Context, (tokenizer, options)) as workers:
        spill = build.tokenize(input_files, workers)
        results = build.write_shards(spill, workers)
    manifest = _manifest(plan, options, spill, results)
    if not manifest.num_examples:
        for shard in manifest.shards:
            _gfile().remove(os.path.join(output.folder, shard.name))
        build.abandon()
        raise AlbertError(
            f"The corpus gives no instance: {_nothing_made(manifest.statistics)}. A document needs "
            "at least two sentences; there is one sentence a line and a blank line after each "
            "document."
        )
    tokenizer.save(output.folder)
    manifest.save(output.folder)
    build.remove()
    return manifest


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def _plan(
    input_files: Sequence[str], tokenizer: Tokenizer, output: Output, options: PretrainingOptions
) -> dict[str, Any]:
    """All that decides the records, as JSON values."""
    inputs = []
    for path in input_files:
        status = _gfile().stat(path)
        inputs.append(
            {"path": path, "bytes": status.length, "modified_nanoseconds": status.mtime_nsec}
        )
    return {
        "tokenizer": tokenizer.spec.to_dict(),
        "options": {
            **dataclasses.asdict(options),
            "input_files": inputs,
            "num_shards": output.wanted_shards,
            "shard_names": list(output.names),
        },
    }


def _finished_manifest(folder: str, plan: dict[str, Any]) -> Manifest | None:
    """The manifest of `folder` if its records are complete and those of `plan`."""
    if not _gfile().exists(os.path.join(folder, FILE_NAME)):
        return None
    manifest = Manifest.load(folder)
    if manifest.options != plan["options"] or manifest.tokenizer != plan["tokenizer"]:
        raise AlbertError(
            f"{folder} holds records of another corpus, tokenizer or options; choose another "
            "folder, or delete it."
        )
    return manifest if all(_is_whole(folder, shard) for shard in manifest.shards) else None


def _is_whole(folder: str, shard: ShardInfo) -> bool:
    path = os.path.join(folder, shard.name)
    return _gfile().exists(path) and _gfile().stat(path).length == shard.bytes


def _tokenize(context: Context, lines: list[str], advance: Advance) -> TokenBlock:
    return tokenize_block(lines, context.tokenizer)


@dataclasses.dataclass(frozen=True)
class _Spill:
    """The tokenized corpus on disk: number of runs, tokens in each bucket, counts."""

    num_runs: int
    bucket_tokens: list[int]
    counts: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _Note:
    """What is written down of a shard that is done."""

    shard: dict[str, Any]
    counts: dict[str, int]


class _Build:
    """A build's output folder, from the plan to the last shard."""

    def __init__(self, plan: dict[str, Any], output: Output, options: PretrainingOptions) -> None:
        """Begins a build, or takes up one that was killed."""
        self._output = output
        self._options = options
        self._folder = os.path.join(output.folder, WORK_FOLDER)
        self._made_output = not _gfile().exists(output.folder)
        plan_path = os.path.join(self._folder, "plan.json")
        if _gfile().exists(plan_path):
            if files.read_json(plan_path, "build plan") != plan:
                raise AlbertError(
                    f"{output.folder} holds an unfinished build of another corpus, tokenizer or "
                    f"options; delete {self._folder}, or choose another folder."
                )
            self._remove_temporary()
        else:
            files.write_json(plan_path, plan)

    def remove(self) -> None:
        """Deletes the working folder."""
        _gfile().rmtree(self._folder)

    def abandon(self) -> None:
        """Deletes the working folder, and the output folder if this build made it."""
        self.remove()
        if self._made_output:
            _gfile().rmtree(self._output.folder)

    def _remove_temporary(self) -> None:
        for pattern in ("*.tfrecord*.tmp-*", f"{WORK_FOLDER}/*.tmp-*"):
            for path in _gfile().glob(os.path.join(self._output.folder, pattern)):
                _gfile().remove(path)

    def tokenize(self, input_files: Sequence[str], workers: Workers) -> _Spill:
        """Tokenizes the corpus into buckets, unless an earlier run has done so."""
        path = os.path.join(self._folder, "spill.json")
        if _gfile().exists(path):
            return from_json(_Spill, files.read_json(path, "build state"), path)
        try:
            spill = self._tokenize_all(input_files, workers)
        except BaseException:
            # The input has to be changed, and then this is no longer the same build.
            self.abandon()
            raise
        files.write_json(path, dataclasses.asdict(spill))
        return spill

    def _tokenize_all(self, input_files: Sequence[str], workers: Workers) -> _Spill:
        text_bytes = sum(
            _gfile().stat(path).length * _EXPANSION.get(os.path.splitext(path)[1], 1)
            for path in input_files
        )
        num_buckets = max(
            self._output.wanted_shards or DEFAULT_NUM_SHARDS, -(-text_bytes // _BUCKET_BYTES)
        )
        writer = SpillWriter(self._folder, num_buckets)
        counts: Counter[str] = Counter()
        with Progress("tokenizing", total_bytes(list(input_files))) as progress:
            blocks = read_blocks(input_files, not self._options.official, progress.update)
            tokenized = workers.map(_tokenize, blocks, progress.update)
            for document in split_documents(tokenized, counts):
                writer.add(document)
        if not counts["tokens"]:
            raise AlbertError(f"The corpus is empty: no text in {', '.join(input_files[:3])}.")
        num_runs, bucket_tokens = writer.finish()
        filled = sum(tokens > 0 for tokens in bucket_tokens)
        if filled < (self._output.wanted_shards or 1):
            raise AlbertError(
                f"The corpus of {counts['documents']} documents is too small for "
                f"{self._output.wanted_shards} shards; ask for at most {filled}."
            )
        return _Spill(num_runs, bucket_tokens, dict(counts))

    def write_shards(
        self, spill: _Spill, workers: Workers
    ) -> list[tuple[ShardInfo, dict[str, int]]]:
        """Writes the shards that are missing; returns all."""
        tasks = self._tasks(spill)
        results: dict[str, tuple[ShardInfo, dict[str, int]]] = {}
        for task in tasks:
            note = self._note_path(task.path)
            if _gfile().exists(note):
                value = from_json(_Note, files.read_json(note, "build state"), note)
                info = from_json(ShardInfo, value.shard, note)
                same = info.name == os.path.basename(task.path)
                if same and _is_whole(self._output.folder, info):
                    results[task.path] = info, value.counts
        missing = [task for task in tasks if task.path not in results]
        passes = self._options.dupe_factor
        work = {
            task.path: passes * sum(spill.bucket_tokens[buckets[0]] for buckets in task.buckets)
            for task in tasks
        }
        done = sum(work[path] for path in results)
        with Progress("building", sum(work.values()), "tokens", done) as progress:
            written = workers.map(write_pretraining_shard, missing, progress.update)
            for task, (info, counts) in zip(missing, written):
                results[task.path] = info, dict(counts)
                note = _Note(dataclasses.asdict(info), dict(counts))
                files.write_json(self._note_path(task.path), dataclasses.asdict(note))
        return [results[task.path] for task in tasks]

    def _note_path(self, shard_path: str) -> str:
        return os.path.join(self._folder, f"{os.path.basename(shard_path)}.json")

    def _tasks(self, spill: _Spill) -> list[ShardTask]:
        """Divides the buckets that have documents over the shards."""
        buckets = np.flatnonzero(spill.bucket_tokens).tolist()
        groups = [[bucket] for bucket in buckets]
        if self._options.needs_other_documents and len(buckets) > 1:
            groups = [list(pair) for pair in zip(buckets, buckets[1:] + buckets[:1])]
        num_shards = self._output.wanted_shards or min(DEFAULT_NUM_SHARDS, len(buckets))
        bounds = [len(groups) * i // num_shards for i in range(num_shards + 1)]
        return [
            ShardTask(path, self._folder, spill.num_runs, len(spill.bucket_tokens), groups[i:j])
            for path, i, j in zip(self._output.paths(num_shards), bounds, bounds[1:])
        ]


def _manifest(
    plan: dict[str, Any],
    options: PretrainingOptions,
    spill: _Spill,
    results: Sequence[tuple[ShardInfo, dict[str, int]]],
) -> Manifest:
    counts: Counter[str] = Counter()
    for _, shard_counts in results:
        counts.update(shard_counts)
    return Manifest(
        kind=COMPACT_PRETRAINING if options.compact else PRETRAINING,
        features=options.features(plan["tokenizer"]["vocab_size"]),
        shards=[info for info, _ in results],
        tokenizer=plan["tokenizer"],
        options=plan["options"],
        statistics=summarize(spill.counts, counts, options),
    )


def summarize(
    corpus: dict[str, int], counts: Counter[str], options: PretrainingOptions
) -> dict[str, Any]:
    """The manifest's statistics; of compact records none of what is drawn while training.

    Args:
      corpus: counts of split_documents.
      counts: counts of all shards, over all passes.
      options: the build's options.
    """
    room = counts["instances"] * options.max_seq_length
    return {
        "corpus": dict(corpus),
        "instances": counts["instances"],
        "fill_ratio": _share(counts["sequence_tokens"], room),
        **({} if options.compact else _masking_statistics(counts, options)),
        "cutting": {
            name: counts[name]
            for name in (
                "instances_truncated",
                "tokens_truncated",
                "chunks_merged_with_next_sentence",
                "chunks_merged_with_previous_sentence",
                "chunks_paired_with_another_document",
                "chunks_dropped_no_other_document",
                "documents_skipped_single_sentence",
            )
        },
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _masking_statistics(counts: Counter[str], options: PretrainingOptions) -> dict[str, Any]:
    """What was masked and swapped."""
    masked = counts["replaced_by_mask"] + counts["kept"] + counts["replaced_by_random"]
    spans = {str(n): counts[f"spans_{n}"] for n in range(1, options.ngram + 1)}
    return {
        "label_1_share": _share(counts["label_1"], counts["instances"]),
        "instances_without_predictions": counts["instances_without_predictions"],
        "masked_tokens": masked,
        "masked_share": _share(masked, counts["sequence_tokens"]),
        "masked_as": {
            "mask": _share(counts["replaced_by_mask"], masked),
            "original": _share(counts["kept"], masked),
            "random": _share(counts["replaced_by_random"], masked),
        },
        "permuted_tokens": counts["permuted"],
        "span_words": {n: _share(count, sum(spans.values())) for n, count in spans.items()},
    }


def _nothing_made(statistics: dict[str, Any]) -> str:
    corpus = statistics["corpus"]
    return f"{corpus['documents']} documents, {corpus['sentences']} sentences"
