# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A build of pretraining records: tokenizes the corpus once, writes the shards, publishes them.

Everything is written into ``_build``, a folder within the output folder. It holds plan.json, which
says whose it is; the buckets of tokenized documents, and buckets.json once all are there; and
records/, with the shards, a note on each finished one, and at last the tokenizer and manifest.json.
Only then do these replace what is in the output folder. So a build that was killed continues
wherever it was.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.data.manifest import COMPACT_PRETRAINING, FILE_NAME, PRETRAINING, Manifest
from albert_tf.data_prep.documents import bucket_path
from albert_tf.data_prep.local_runner import LocalRunner
from albert_tf.data_prep.pretraining_options import NSP, PretrainingOptions
from albert_tf.data_prep.pretraining_shards import (
    RECORDS,
    Context,
    ShardTask,
    is_complete,
    summarize,
)
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import files, removal, storage
from albert_tf.io.folders import names_below
from albert_tf.io.locks import lock_folder
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer

WORK_FOLDER = "_build"
DEFAULT_NUM_SHARDS = 10
_SHARD = re.compile(r"pretraining-\d{5}-of-\d{5}\.tfrecord")
#: Bytes of text in a bucket. The token ranges of a bucket's instances are in memory together.
_BUCKET_BYTES = 1 << 23
#: Bytes of text in a stored byte, roughly; only used to choose the number of buckets.
_EXPANSION = {".gz": 3, ".bz2": 4, ".xz": 4}


def build_pretraining_data(
    input_files: Sequence[str],
    tokenizer: Tokenizer,
    folder: str,
    options: PretrainingOptions,
    runner: Callable[..., Any] = LocalRunner,
    overwrite: bool = False,
) -> Manifest:
    """Builds the records of a corpus and returns their manifest.

    The shards depend on the text, the tokenizer and the options, not on the runner. Does nothing if
    the folder's manifest shows that the same records are complete; continues an unfinished build of
    the same records, also with another runner.

    Args:
      input_files: text, one sentence per line, a blank line between documents.
      tokenizer: of the records.
      folder: for the shards, the manifest, the tokenizer and, during the build, `_build`.
      options: the options that decide the records.
      runner: makes the runner from the context and the build's working folder: a context manager
        with `tokenize(input_files, num_buckets)` and `write_shards(tasks)`.
      overwrite: replace other records, and other files with the names of the output files; they
        stay until the new ones are complete.

    Raises:
      AlbertError: bad input, an output folder with other records, files in the way or a writing
        process, a failed worker, or a corpus without any instance.
    """
    build = _Build(input_files, tokenizer, folder, options)
    # Records that are complete can be read while a process holds the folder, or without the right
    # to write there.
    if not build.has_remains() and (manifest := build.finished(overwrite)):
        return manifest
    with lock_folder(folder), removal.own_temporaries(build.owner, *build.folders):
        return build.finished(overwrite) or build.run(runner, overwrite)


@dataclasses.dataclass
class _Build:
    """One build: its plan, its working folder inside the output folder, and temporaries' owner."""

    input_files: Sequence[str]
    tokenizer: Tokenizer
    folder: str
    options: PretrainingOptions

    def __post_init__(self) -> None:
        self.work_folder = os.path.join(self.folder, WORK_FOLDER)
        self._records = os.path.join(self.work_folder, RECORDS)
        #: Where temporary files may be.
        self.folders = self.folder, self.work_folder, self._records
        self._plan_path = os.path.join(self.work_folder, "plan.json")
        inputs = []
        for path in self.input_files:
            status = files.gfile().stat(path)
            inputs.append(
                {"path": path, "bytes": status.length, "modified_nanoseconds": status.mtime_nsec}
            )
        #: Everything that decides the records, as JSON values.
        self._plan = {
            "tokenizer": self.tokenizer.spec.to_dict(),
            "options": {**dataclasses.asdict(self.options), "input_files": inputs},
        }
        self.owner = removal.owner_id("build", self._plan)

    def has_remains(self) -> bool:
        """Returns whether a build is unfinished, or one of this plan has left temporary files."""
        names = storage.listdir(self.folder)
        return WORK_FOLDER in names or any(self.owner in name for name in names)

    def finished(self, overwrite: bool) -> Manifest | None:
        """Returns the folder's manifest if the planned records are complete.

        Raises:
          AlbertError: the folder has other records, which must not be overwritten.
        """
        plan = files.read_json(self._plan_path) if files.exists(self._plan_path) else None
        manifest_path = os.path.join(self.folder, FILE_NAME)
        # Without a manifest, the publication of that build, whichever it is, has begun.
        publishes = plan == self._plan or not files.exists(manifest_path)
        if plan and publishes and files.exists(os.path.join(self._records, FILE_NAME)):
            _publish(self.folder)
        if not files.exists(manifest_path):
            return None
        manifest = Manifest.load(self.folder)
        if {"options": manifest.options, "tokenizer": manifest.tokenizer} == self._plan:
            if not all(is_complete(self.folder, shard) for shard in manifest.shards):
                return None
            if plan == self._plan and files.exists(self.work_folder):
                _remove(self.work_folder)
            return manifest
        if not overwrite:
            raise AlbertError(
                f"{self.folder} holds records of another corpus, tokenizer or options; give "
                "another folder, or set `overwrite`."
            )
        return None

    def run(self, make_runner: Callable[..., Any], overwrite: bool) -> Manifest:
        """Builds the records in the output folder, which this process has locked."""
        self.check_files_in_the_way(overwrite)
        if not files.exists(self._plan_path):
            # Remote file systems may keep the empty folders of a former build.
            list_names = storage.listdir if files.is_local(self.work_folder) else names_below
            if list_names(self.work_folder):
                raise AlbertError(
                    f"{self.work_folder} holds files, but no plan of a build; move it away, or "
                    "give another folder."
                )
        elif files.read_json(self._plan_path, "build plan") != self._plan:
            if not overwrite:
                raise AlbertError(
                    f"{self.folder} holds an unfinished build of another corpus, tokenizer or "
                    "options; give another folder, or set `overwrite`."
                )
            _remove(self.work_folder)
        with make_runner(Context(self.tokenizer, self.options), self.work_folder) as runner:
            files.write_json(self._plan_path, self._plan)
            manifest = self._manifest(runner)
        self.tokenizer.save(self._records)
        manifest.save(self._records)
        _publish(self.folder)
        return manifest

    def check_files_in_the_way(self, overwrite: bool) -> None:
        """Raises AlbertError if an output file is an input, or not from a build of this plan."""

        def has(name, content) -> bool:
            path = os.path.join(self.folder, name)
            return not files.exists(path) or files.read_bytes(path) == content

        spec = self.tokenizer.spec
        names = {name for name in storage.listdir(self.folder) if _SHARD.fullmatch(name)}
        inputs = list(self.input_files)
        if has_records := files.exists(os.path.join(self.folder, FILE_NAME)):
            names |= {FILE_NAME, *(shard.name for shard in Manifest.load(self.folder).shards)}
        same_spec = has(SPEC_FILE, files.json_bytes(spec.to_dict()))
        if not (same_spec and has(spec.model_file, self.tokenizer.data)):
            names |= {SPEC_FILE, spec.model_file}
            inputs.append(self.tokenizer.source)
        for name in sorted(names):
            path = os.path.join(self.folder, name)
            files.check_output(path, inputs, overwrite or has_records)

    def _manifest(self, runner: Any) -> Manifest:
        """Writes what is missing in the working folder; returns the manifest of all shards."""
        tasks = self._tasks(self._buckets(runner))
        missing = [task for task in tasks if task.result() is None]
        if missing:
            runner.write_shards(missing)
        results = [task.result() for task in tasks]
        if None in results:
            raise StoppedError(
                f"{tasks[results.index(None)].path} was written and is now missing or cut short; "
                "run the same command again."
            )
        counts = Counter()
        for _, shard_counts in results:
            counts.update(shard_counts)
        if not counts["instances"]:
            _remove(self.work_folder)
            raise AlbertError(
                f"The corpus gives no instance: {counts['documents']} documents, "
                f"{counts['sentences']} sentences. Write one sentence per line and a blank line "
                "after each document. A document needs two sentences, and with `whole_sentences` "
                "two that fit into `max_seq_length` together."
            )
        return Manifest(
            kind=COMPACT_PRETRAINING if self.options.compact else PRETRAINING,
            features=self.options.features(self.tokenizer.vocab_size),
            shards=[shard for shard, _ in results],
            tokenizer=self._plan["tokenizer"],
            options=self._plan["options"],
            statistics=summarize(counts, self.options),
        )

    def _buckets(self, runner: Any) -> list[int]:
        """Returns the buckets that have documents, tokenizing the corpus if need be."""
        path = os.path.join(self.work_folder, "buckets.json")
        if files.exists(path):
            return files.read_json(path, "build state")
        try:
            buckets = self._tokenize(runner)
        except StoppedError:
            raise
        except AlbertError:
            # The input has to be changed, which makes it another build.
            _remove(self.work_folder)
            raise
        files.write_json(path, buckets)
        return buckets

    def _tokenize(self, runner: Any) -> list[int]:
        text_bytes = sum(
            storage.size(path) * _EXPANSION.get(os.path.splitext(path)[1], 1)
            for path in self.input_files
        )
        wanted = self.options.num_shards
        num_buckets = max(wanted or DEFAULT_NUM_SHARDS, -(-text_bytes // _BUCKET_BYTES))
        runner.tokenize(self.input_files, num_buckets)
        written = set(storage.listdir(self.work_folder))
        buckets = [i for i in range(num_buckets) if bucket_path("", i) in written]
        if not buckets:
            names = ", ".join(self.input_files[:3])
            raise AlbertError(f"The corpus is empty: no text in {names}.")
        if len(buckets) < (wanted or 1):
            raise AlbertError(
                f"The documents of the corpus fill only {len(buckets)} of {wanted} shards; ask for "
                f"at most {len(buckets)}."
            )
        return buckets

    def _tasks(self, buckets: Sequence[int]) -> list[ShardTask]:
        """Distributes the buckets over the shards."""
        groups = [[bucket] for bucket in buckets]
        if self.options.sentence_objective == NSP and len(buckets) > 1:
            groups = [*map(list, zip(buckets, [*buckets[1:], buckets[0]]))]
        num_shards = self.options.num_shards or min(DEFAULT_NUM_SHARDS, len(buckets))
        names = [f"pretraining-{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)]
        bounds = [len(groups) * i // num_shards for i in range(num_shards + 1)]
        return [
            ShardTask(self.work_folder, name, groups[i:j], self.owner)
            for name, i, j in zip(names, bounds, bounds[1:])
        ]


def _publish(folder: str) -> None:
    """Moves complete records from the working folder in place of former ones.

    If it is killed, it can be called again. The former manifest is deleted before any file of its
    records is replaced, and the new one comes last.
    """
    work = os.path.join(folder, WORK_FOLDER)
    manifest = Manifest.load(os.path.join(work, RECORDS))
    names = [shard.name for shard in manifest.shards]
    names += [manifest.tokenizer["model_file"], SPEC_FILE]
    if files.exists(os.path.join(folder, FILE_NAME)):
        former = {shard.name for shard in Manifest.load(folder).shards}
        removal.remove_files(folder, [*sorted(former.difference(names)), FILE_NAME])
    for name in [*names, FILE_NAME]:
        path = files.join_named(os.path.join(work, RECORDS), name, work)
        if files.exists(path):
            removal.move(path, os.path.join(folder, name))
    _remove(work)


def _remove(work_folder: str) -> None:
    # Moved first, so that no part of it can be taken for a build to be continued.
    removed = removal.temporary_name(work_folder)
    removal.move(work_folder, removed)
    removal.remove_temporary(removed)
