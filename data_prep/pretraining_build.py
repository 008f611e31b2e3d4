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
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from albert_tf.data.manifest import (
    BUILDER_VERSION,
    COMPACT_PRETRAINING,
    FILE_NAME,
    PRETRAINING,
    Manifest,
)
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import files
from albert_tf.io.locks import lock_folder
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from data_prep.local_runner import LocalRunner
from data_prep.pretraining_options import PretrainingOptions
from data_prep.pretraining_shards import Context, ShardResult, ShardTask, is_whole
from data_prep.pretraining_statistics import summarize
from data_prep.spill import Spill

WORK_FOLDER = "_build"
DEFAULT_NUM_SHARDS = 10
_PLAN_FILE = "plan.json"
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
    runner: Callable[[Context, str], Runner] = LocalRunner,
    overwrite: bool = False,
) -> Manifest:
    """Builds the records of a corpus; returns their manifest.

    The shards depend on the text, the tokenizer, the options and the number of shards, not on what
    runs the build. A folder whose manifest shows that just these records are complete is left
    alone; an unfinished build of the same is continued, by another runner too.

    Args:
      input_files: text, one sentence a line, a blank line between documents.
      tokenizer_source: where the tokenizer is.
      output: where the records go.
      options: what the records are.
      runner: makes what runs the build of the context and the build's folder.
      overwrite: replace other records, and files of the names that are needed.

    Raises:
      AlbertError: bad input, an output folder with other records or one that another process
        writes to, files in the way, a failed worker, or a corpus that gives no instance.
    """
    tokenizer = tokenizer_source.load()
    plan = _plan(input_files, tokenizer, output, options)
    folder = os.path.join(output.folder, WORK_FOLDER)
    finished = None if overwrite else _finished_manifest(output.folder, plan)
    if finished and not _gfile().exists(folder):
        return finished
    with lock_folder(output.folder, "building records"):
        if overwrite:
            _remove_others(output.folder, plan, input_files)
        _check_in_the_way(output, plan, tokenizer, input_files, overwrite)
        return _build_records(plan, input_files, tokenizer, output, options, runner)


def _build_records(
    plan: dict[str, Any],
    input_files: Sequence[str],
    tokenizer: Tokenizer,
    output: Output,
    options: PretrainingOptions,
    runner: Callable[[Context, str], Runner],
) -> Manifest:
    """Builds the records of a plan into the folder that this process has locked."""
    folder = os.path.join(output.folder, WORK_FOLDER)
    finished = _finished_manifest(output.folder, plan)
    if finished:
        # Its build may have been killed at the very end, or has just ended in another process.
        if _gfile().exists(folder):
            _gfile().rmtree(folder)
        return finished
    with runner(Context(tokenizer, options), folder) as running:
        build = _Build(plan, output, options)
        spill = build.tokenize(input_files, running)
        results = build.write_shards(spill, running)
    manifest = _manifest(plan, options, spill, results)
    if not manifest.num_examples:
        for shard in manifest.shards:
            _gfile().remove(os.path.join(output.folder, shard.name))
        build.remove()
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
        "builder_version": BUILDER_VERSION,
        "tokenizer": tokenizer.spec.to_dict(),
        "options": {
            **dataclasses.asdict(options),
            "input_files": inputs,
            "num_shards": output.wanted_shards,
            "shard_names": list(output.names),
        },
    }


def _is_of(manifest: Manifest, plan: dict[str, Any]) -> bool:
    """Whether records are those of a plan."""
    return manifest.options == plan["options"] and manifest.tokenizer == plan["tokenizer"]


def _finished_manifest(folder: str, plan: dict[str, Any]) -> Manifest | None:
    """The manifest of `folder` if its records are complete and those of `plan`."""
    if not _gfile().exists(os.path.join(folder, FILE_NAME)):
        return None
    manifest = Manifest.load(folder)
    if not _is_of(manifest, plan):
        raise AlbertError(
            f"{folder} holds records of another corpus, tokenizer or options; give another "
            "folder, or set --overwrite."
        )
    if manifest.order_warning():
        raise AlbertError(
            f"{folder} holds records of this corpus that version {manifest.builder_version} of the "
            "builder made, one part of the text after the other; give another folder, or set "
            "--overwrite."
        )
    return manifest if all(is_whole(folder, shard) for shard in manifest.shards) else None


def _remove_others(folder: str, plan: dict[str, Any], input_files: Sequence[str]) -> None:
    """Deletes what another plan has built in `folder`, finished or not; refuses if it is read."""
    others: list[str] = []
    begun = False
    if _gfile().exists(os.path.join(folder, FILE_NAME)):
        manifest = Manifest.load(folder)
        if not _is_of(manifest, plan) or manifest.order_warning():
            # The manifest goes first: where it is, its shards are complete.
            others = [FILE_NAME, *(shard.name for shard in manifest.shards)]
    work_folder = os.path.join(folder, WORK_FOLDER)
    plan_path = os.path.join(work_folder, _PLAN_FILE)
    if _gfile().exists(plan_path):
        other = files.read_object(plan_path, "build plan")
        if other != plan:
            others += _shard_names(folder, other.get("options", {}).get("shard_names", []))
            begun = True
    paths = [files.join_named(folder, name, folder) for name in others]
    for path in paths:
        files.check_output(path, input_files, overwrite=True)
    for path in paths:
        if _gfile().exists(path):
            _gfile().remove(path)
    if begun:
        _gfile().rmtree(work_folder)


def _check_in_the_way(
    output: Output,
    plan: dict[str, Any],
    tokenizer: Tokenizer,
    input_files: Sequence[str],
    overwrite: bool,
) -> None:
    """Refuses to build over files that are read, or that no build of this plan has written."""
    written = [FILE_NAME, SPEC_FILE, tokenizer.spec.model_file]
    names = _shard_names(output.folder, output.names)
    # A folder there is in nobody's danger: the shard cannot be written, and that is told then.
    shards = [name for name in names if not _gfile().isdir(os.path.join(output.folder, name))]
    for name in [*written, *shards]:
        files.check_output(os.path.join(output.folder, name), input_files, overwrite=True)
    begun = _gfile().exists(os.path.join(output.folder, WORK_FOLDER, _PLAN_FILE))
    if begun or _gfile().exists(os.path.join(output.folder, FILE_NAME)):
        return  # Of which plan, `_finished_manifest` and `_Build` look.
    if not _fits_tokenizer(output.folder, tokenizer):
        shards += [SPEC_FILE, tokenizer.spec.model_file]
    for name in shards:
        files.check_output(os.path.join(output.folder, name), (), overwrite)


def _fits_tokenizer(folder: str, tokenizer: Tokenizer) -> bool:
    """Whether no file in a folder differs from those that the tokenizer is kept in."""
    spec, model = (os.path.join(folder, name) for name in (SPEC_FILE, tokenizer.spec.model_file))
    exists = _gfile().exists
    return (not exists(model) or files.sha256(model) == tokenizer.spec.sha256) and (
        not exists(spec) or files.read_json(spec, "tokenizer") == tokenizer.spec.to_dict()
    )


def _shard_names(folder: str, names: Sequence[str]) -> list[str]:
    """The names of shards: those given, or the usual ones that are in a folder."""
    usual = os.path.join(folder, "pretraining-*-of-*.tfrecord")
    return list(names) or [os.path.basename(path) for path in _gfile().glob(usual)]


class Runner(Protocol):
    """Runs a build's work in processes of this machine or on others; a context manager."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, *exception: object) -> None: ...

    def tokenize(self, input_files: Sequence[str], num_buckets: int) -> Spill:
        """Tokenizes the files, deals their documents to buckets and writes them to run files.

        Raises:
          AlbertError: bad text. StoppedError: it stopped for another reason.
        """

    def write_shards(self, tasks: Sequence[ShardTask], all_tokens: int) -> None:
        """Writes shards and the notes on them.

        Args:
          tasks: the shards that are missing.
          all_tokens: tokens of the whole corpus, other shards included.
        """


class _Build:
    """A build's output folder, from the plan to the last shard."""

    def __init__(self, plan: dict[str, Any], output: Output, options: PretrainingOptions) -> None:
        """Begins a build, or takes up one that was killed."""
        self._output = output
        self._options = options
        self._folder = os.path.join(output.folder, WORK_FOLDER)
        plan_path = os.path.join(self._folder, _PLAN_FILE)
        if _gfile().exists(plan_path):
            if files.read_json(plan_path, "build plan") != plan:
                raise AlbertError(
                    f"{output.folder} holds an unfinished build of another corpus, tokenizer, "
                    "options or version; give another folder, or set --overwrite."
                )
            for folder in (output.folder, self._folder):
                files.remove_temporary(folder)
        else:
            files.write_json(plan_path, plan)

    def remove(self) -> None:
        """Deletes the working folder."""
        _gfile().rmtree(self._folder)

    def tokenize(self, input_files: Sequence[str], runner: Runner) -> Spill:
        """Tokenizes the corpus into buckets, unless an earlier run has done so."""
        path = os.path.join(self._folder, "spill.json")
        if _gfile().exists(path):
            return Spill.from_values(files.read_json(path, "build state"), path)
        try:
            spill = runner.tokenize(input_files, self._num_buckets(input_files))
            self._check(spill, input_files)
        except AlbertError as error:
            # The input has to be changed, and then this is no longer the same build.
            if not isinstance(error, StoppedError):
                self.remove()
            raise
        files.write_json(path, dataclasses.asdict(spill))
        return spill

    def _num_buckets(self, input_files: Sequence[str]) -> int:
        text_bytes = sum(
            _gfile().stat(path).length * _EXPANSION.get(os.path.splitext(path)[1], 1)
            for path in input_files
        )
        least = self._output.wanted_shards or DEFAULT_NUM_SHARDS
        return max(least, -(-text_bytes // _BUCKET_BYTES))

    def _check(self, spill: Spill, input_files: Sequence[str]) -> None:
        """Raises AlbertError for a corpus that is too small."""
        if not spill.counts.get("tokens"):
            raise AlbertError(f"The corpus is empty: no text in {', '.join(input_files[:3])}.")
        filled = sum(tokens > 0 for tokens in spill.bucket_tokens)
        if filled < (self._output.wanted_shards or 1):
            raise AlbertError(
                f"The corpus of {spill.counts['documents']} documents is too small for "
                f"{self._output.wanted_shards} shards; ask for at most {filled}."
            )

    def write_shards(self, spill: Spill, runner: Runner) -> list[ShardResult]:
        """Writes the shards that are missing; returns all."""
        tasks = self._tasks(spill)
        results = [task.result() for task in tasks]
        missing = [task for task, result in zip(tasks, results) if result is None]
        if not missing:
            return results
        runner.write_shards(missing, sum(task.num_tokens for task in tasks))
        results = [task.result() for task in tasks]
        lost = [task.path for task, result in zip(tasks, results) if result is None]
        if lost:
            raise StoppedError(
                f"{lost[0]} was written and is gone or cut short; run the same command again."
            )
        return results

    def _tasks(self, spill: Spill) -> list[ShardTask]:
        """Divides the buckets that have documents over the shards."""
        buckets = np.flatnonzero(spill.bucket_tokens).tolist()
        groups = [[bucket] for bucket in buckets]
        if self._options.needs_other_documents and len(buckets) > 1:
            groups = [list(pair) for pair in zip(buckets, buckets[1:] + buckets[:1])]
        num_shards = self._output.wanted_shards or min(DEFAULT_NUM_SHARDS, len(buckets))
        bounds = [len(groups) * i // num_shards for i in range(num_shards + 1)]
        return [
            ShardTask(
                path,
                self._folder,
                spill.runs,
                groups[i:j],
                sum(spill.bucket_tokens[group[0]] for group in groups[i:j]),
            )
            for path, i, j in zip(self._output.paths(num_shards), bounds, bounds[1:])
        ]


def _manifest(
    plan: dict[str, Any],
    options: PretrainingOptions,
    spill: Spill,
    results: Sequence[ShardResult],
) -> Manifest:
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    return Manifest(
        kind=COMPACT_PRETRAINING if options.compact else PRETRAINING,
        features=options.features(plan["tokenizer"]["vocab_size"]),
        shards=[result.shard for result in results],
        tokenizer=plan["tokenizer"],
        options=plan["options"],
        statistics=summarize(spill.counts, counts, options),
        builder_version=BUILDER_VERSION,
    )


def _nothing_made(statistics: dict[str, Any]) -> str:
    corpus = statistics["corpus"]
    return f"{corpus['documents']} documents, {corpus['sentences']} sentences"
