# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A build of pretraining records: tokenizes the corpus once, then writes the shards.

During a build, its output folder holds ``_build`` with the plan, the tokenized documents and notes
on the finished shards. From these a build that was killed continues.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from albert_tf.data.manifest import (
    COMPACT_PRETRAINING,
    FILE_NAME,
    PRETRAINING,
    Manifest,
)
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import files, removal, storage
from albert_tf.io.folders import names_below
from albert_tf.io.locks import lock_folder
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from data_prep.encoding import Context, summarize
from data_prep.local_runner import LocalRunner
from data_prep.pretraining_options import NSP, PretrainingOptions
from data_prep.pretraining_shards import (
    ShardResult,
    ShardTask,
    is_complete,
)
from data_prep.spill import Spill

WORK_FOLDER = "_build"
DEFAULT_NUM_SHARDS = 10
_DEFAULT = re.compile(r"pretraining-\d{5}-of-\d{5}\.tfrecord")
#: Bytes of text in a bucket. The token ranges of a bucket's instances are in memory together.
_BUCKET_BYTES = 1 << 23
#: Bytes of text in a stored byte, roughly; only used to choose the number of buckets.
_EXPANSION = {".gz": 3, ".bz2": 4, ".xz": 4}


@dataclasses.dataclass(frozen=True)
class Output:
    """Where the records go.

    Attributes:
      folder: holds the shards, the manifest, the tokenizer and, during the build, `_build`.
      num_shards: number of shards; None: ten, or fewer for a small corpus.
      names: file names of the shards; by default pretraining-00000-of-00010.tfrecord and so on.
    """

    folder: str
    num_shards: int | None = None
    names: Sequence[str] = ()

    @property
    def wanted_shards(self) -> int | None:
        """The number of shards asked for; None if it is left to the builder."""
        return len(self.names) or self.num_shards

    def paths(self, num_shards: int) -> list[str]:
        """Returns the paths of the shards."""
        names = self.names or [
            f"pretraining-{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)
        ]
        return [os.path.join(self.folder, name) for name in names]


class Runner(Protocol):
    """Runs a build's work in processes of this machine or on others; a context manager."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, *exception: object) -> None: ...

    def tokenize(self, input_files: Sequence[str], num_buckets: int) -> Spill:
        """Tokenizes the files, deals their documents to buckets and writes them to run files.

        Raises:
          AlbertError: bad text.
          StoppedError: it stopped for another reason.
        """

    def write_shards(self, tasks: Sequence[ShardTask], all_tokens: int) -> None:
        """Writes shards and the notes on them.

        Args:
          tasks: the shards that are missing.
          all_tokens: tokens of the whole corpus, including those of finished shards.
        """


def build_pretraining_data(
    input_files: Sequence[str],
    tokenizer: Tokenizer,
    output: Output,
    options: PretrainingOptions,
    runner: Callable[[Context, str], Runner] = LocalRunner,
    overwrite: bool = False,
) -> Manifest:
    """Builds the records of a corpus and returns their manifest.

    The shards depend on the text, the tokenizer, the options and the number of shards, not on the
    runner. Does nothing if the folder's manifest shows that the same records are complete;
    continues an unfinished build of the same records, also with another runner.

    Args:
      input_files: text, one sentence per line, a blank line between documents.
      tokenizer: of the records.
      output: where the records go.
      options: the options that decide the records.
      runner: makes the runner from the context and the build's working folder.
      overwrite: replace other records, and other files with the names of the output files.

    Raises:
      AlbertError: bad input, an output folder with other records, files in the way or a writing
        process, a failed worker, or a corpus without any instance.
    """
    build = _Build(input_files, tokenizer, output, options)
    finished = None if overwrite else build.finished()
    left = any(build.owner in name for name in storage.listdir(output.folder))
    if finished and not left and not files.exists(build.work_folder):
        return finished
    with lock_folder(output.folder, "building records"):
        if overwrite:
            build.move_others_aside()
        build.check_files_in_the_way(overwrite)
        with removal.own_temporaries(build.owner, output.folder, build.work_folder):
            return build.finished(clean_up=True) or build.run(runner)


class _Build:
    """One build: its plan and its output folder.

    Attributes:
      work_folder: the working folder, inside the output folder; its plan shows whose it is.
      owner: the id of the build's temporary files.
    """

    def __init__(
        self,
        input_files: Sequence[str],
        tokenizer: Tokenizer,
        output: Output,
        options: PretrainingOptions,
    ) -> None:
        self._input_files = input_files
        self._tokenizer = tokenizer
        self._output = output
        self._options = options
        self._folder = output.folder
        self.work_folder = os.path.join(output.folder, WORK_FOLDER)
        self._plan_path = os.path.join(self.work_folder, "plan.json")
        self._former = os.path.join(self.work_folder, "former")
        self._plan = self._make_plan()
        self.owner = removal.owner_id("build", self._plan)

    def _make_plan(self) -> dict[str, Any]:
        """Returns everything that decides the records, as JSON values."""
        inputs = []
        for path in self._input_files:
            status = files.gfile().stat(path)
            inputs.append(
                {"path": path, "bytes": status.length, "modified_nanoseconds": status.mtime_nsec}
            )
        return {
            "tokenizer": self._tokenizer.spec.to_dict(),
            "options": {
                **dataclasses.asdict(self._options),
                "input_files": inputs,
                "num_shards": self._output.wanted_shards,
                "shard_names": list(self._output.names),
            },
        }

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _is_planned(self, manifest: Manifest) -> bool:
        plan = self._plan
        return manifest.options == plan["options"] and manifest.tokenizer == plan["tokenizer"]

    def finished(self, clean_up: bool = False) -> Manifest | None:
        """Returns the folder's manifest if the planned records are complete.

        Args:
          clean_up: whether to remove the working folder of complete records, which a build leaves
            if it is killed at the very end.

        Raises:
          AlbertError: the folder has other records.
        """
        if not files.exists(self._path(FILE_NAME)):
            return None
        manifest = Manifest.load(self._folder)
        if not self._is_planned(manifest):
            raise AlbertError(
                f"{self._folder} holds records of another corpus, tokenizer or options; give "
                "another folder, or set `overwrite`."
            )
        if not all(is_complete(self._folder, shard) for shard in manifest.shards):
            return None
        if clean_up and files.exists(self.work_folder):
            self._remove_work_folder()
        return manifest

    def move_others_aside(self) -> None:
        """Makes room for this build, unless the files of other builds are input files.

        Finished records go to `_build/former` and are deleted with it once the new ones are
        complete, or put back if the build fails. Shards of an unfinished build are deleted.
        """
        if files.exists(self._plan_path):
            plan = files.read_object(self._plan_path, "build plan")
            if plan != self._plan:
                self._give_up(plan.get("options", {}).get("shard_names", []))
        if not files.exists(self._path(FILE_NAME)):
            return
        manifest = Manifest.load(self._folder)
        if self._is_planned(manifest):
            return
        # The manifest goes last: it names what is still to be moved if this is killed.
        names = [*(shard.name for shard in manifest.shards), FILE_NAME]
        paths = [files.join_named(self._folder, name, self._folder) for name in names]
        for path in paths:
            files.check_output(path, self._input_files, overwrite=True)
        files.write_json(self._plan_path, self._plan)
        storage.makedirs(self._former)
        for path in filter(files.exists, paths):
            removal.move(path, os.path.join(self._former, os.path.basename(path)))

    def _give_up(self, shard_names: Sequence[str]) -> None:
        """Deletes the shards that an unfinished build has written, and puts former ones back."""
        names = self._shard_names(shard_names)
        for name in names:
            path = files.join_named(self._folder, name, self._folder)
            files.check_output(path, self._input_files, overwrite=True)
        if not files.exists(self._path(FILE_NAME)):  # Else it began after these were complete.
            removal.remove_files(self._folder, names)
        self._put_back()

    def _put_back(self) -> None:
        """Puts back the records that this build was to replace, and deletes the working folder."""
        for name in storage.listdir(self._former):
            removal.move(os.path.join(self._former, name), self._path(name))
        self._remove_work_folder()

    def check_files_in_the_way(self, overwrite: bool) -> None:
        """Raises AlbertError if an output file is an input, or not from a build of this plan."""
        tokenizer_names = [SPEC_FILE, self._tokenizer.spec.model_file]
        # A folder cannot be overwritten by mistake; writing the shard will report it.
        names = self._shard_names(self._output.names)
        shards = [name for name in names if not files.isdir(self._path(name))]
        for name in [FILE_NAME, *tokenizer_names, *shards]:
            files.check_output(self._path(name), self._input_files, overwrite=True)
        if not self._has_this_tokenizer():
            for name in tokenizer_names:
                files.check_output(self._path(name), [self._tokenizer.source], overwrite=True)
        if files.exists(self._plan_path) or files.exists(self._path(FILE_NAME)):
            return  # `finished` and `_start` check of which plan these are.
        for name in shards if self._has_this_tokenizer() else [*shards, *tokenizer_names]:
            files.check_output(self._path(name), (), overwrite)

    def _has_this_tokenizer(self) -> bool:
        """Returns whether the tokenizer's files, if they exist, are those of this tokenizer."""
        spec = self._tokenizer.spec
        spec_path, model_path = self._path(SPEC_FILE), self._path(spec.model_file)
        exists = files.exists
        return (not exists(model_path) or files.sha256(model_path) == spec.sha256) and (
            not exists(spec_path) or files.read_json(spec_path, "tokenizer") == spec.to_dict()
        )

    def _shard_names(self, names: Sequence[str]) -> list[str]:
        """Returns the given names, or if there are none all default names in the folder."""
        return list(names) or [n for n in storage.listdir(self._folder) if _DEFAULT.fullmatch(n)]

    def run(self, make_runner: Callable[[Context, str], Runner]) -> Manifest:
        """Builds the records in the output folder, which this process has locked."""
        context = Context(self._tokenizer, self._options)
        with make_runner(context, self.work_folder) as runner:
            self._start()
            spill = self._tokenize(runner)
            results = self._write_shards(spill, runner)
        manifest = self._manifest(spill, results)
        if not manifest.num_examples:
            self._give_up([shard.name for shard in manifest.shards])
            reason = (
                "A document needs at least two sentences; write one sentence per line and a blank "
                "line after each document."
            )
            if manifest.statistics["cutting"].get("sentences_left_out"):
                reason = (
                    f"No two sentences fit into `max_seq_length`={self._options.max_seq_length}; "
                    "raise it, or leave `whole_sentences` out."
                )
            raise AlbertError(
                f"The corpus gives no instance: {spill.counts['documents']} documents, "
                f"{spill.counts['sentences']} sentences. {reason}"
            )
        self._tokenizer.save(self._folder)
        manifest.save(self._folder)
        self._remove_work_folder()
        return manifest

    def _remove_work_folder(self) -> None:
        # Moved first, so that no part of it can be taken for a build to be continued.
        removed = removal.temporary_name(self.work_folder)
        removal.move(self.work_folder, removed)
        removal.remove_temporary(removed)

    def _start(self) -> None:
        """Starts a build, or continues one that was killed."""
        if not files.exists(self._plan_path):
            # Remote file systems may keep the empty folders of a former build.
            list_names = storage.listdir if files.is_local(self.work_folder) else names_below
            if list_names(self.work_folder):
                raise AlbertError(
                    f"{self.work_folder} holds files, but no plan of a build; move it away, or "
                    "give another folder."
                )
            files.write_json(self._plan_path, self._plan)
            return
        if files.read_json(self._plan_path, "build plan") != self._plan:
            raise AlbertError(
                f"{self._folder} holds an unfinished build of another corpus, tokenizer or "
                "options; give another folder, or set `overwrite`."
            )

    def _tokenize(self, runner: Runner) -> Spill:
        """Tokenizes the corpus into buckets, unless an earlier run has done so."""
        path = os.path.join(self.work_folder, "spill.json")
        if files.exists(path):
            return Spill.load(path)
        try:
            spill = runner.tokenize(self._input_files, self._num_buckets())
            self._check_size(spill)
        except AlbertError as error:
            # The input has to be changed, which makes it another build.
            if not isinstance(error, StoppedError):
                self._put_back()
            raise
        spill.save(path)
        return spill

    def _num_buckets(self) -> int:
        text_bytes = sum(
            storage.size(path) * _EXPANSION.get(os.path.splitext(path)[1], 1)
            for path in self._input_files
        )
        least = self._output.wanted_shards or DEFAULT_NUM_SHARDS
        return max(least, -(-text_bytes // _BUCKET_BYTES))

    def _check_size(self, spill: Spill) -> None:
        """Raises AlbertError if the corpus is too small."""
        if not spill.counts.get("tokens"):
            names = ", ".join(self._input_files[:3])
            raise AlbertError(f"The corpus is empty: no text in {names}.")
        filled = sum(tokens > 0 for tokens in spill.bucket_tokens)
        wanted = self._output.wanted_shards or 1
        if filled < wanted:
            raise AlbertError(
                f"The corpus of {spill.counts['documents']} documents is too small for {wanted} "
                f"shards; ask for at most {filled}."
            )

    def _write_shards(self, spill: Spill, runner: Runner) -> list[ShardResult]:
        """Writes the missing shards; returns the results of all."""
        tasks = self._tasks(spill)
        missing = [task for task in tasks if task.result() is None]
        if missing:
            runner.write_shards(missing, sum(task.num_tokens for task in tasks))
        results = [task.result() for task in tasks]
        if None in results:
            raise StoppedError(
                f"{tasks[results.index(None)].path} was written and is now missing or cut short; "
                "run the same command again."
            )
        return results

    def _tasks(self, spill: Spill) -> list[ShardTask]:
        """Distributes the buckets that have documents over the shards."""
        buckets = np.flatnonzero(spill.bucket_tokens).tolist()
        groups = [[bucket] for bucket in buckets]
        if self._options.sentence_objective == NSP and len(buckets) > 1:
            groups = [list(pair) for pair in zip(buckets, buckets[1:] + buckets[:1])]
        num_shards = self._output.wanted_shards or min(DEFAULT_NUM_SHARDS, len(buckets))
        bounds = [len(groups) * i // num_shards for i in range(num_shards + 1)]
        return [
            ShardTask(
                path,
                self.work_folder,
                spill.runs,
                groups[i:j],
                sum(spill.bucket_tokens[group[0]] for group in groups[i:j]),
                self.owner,
            )
            for path, i, j in zip(self._output.paths(num_shards), bounds, bounds[1:])
        ]

    def _manifest(self, spill: Spill, results: Sequence[ShardResult]) -> Manifest:
        counts: Counter[str] = Counter()
        for result in results:
            counts.update(result.counts)
        return Manifest(
            kind=COMPACT_PRETRAINING if self._options.compact else PRETRAINING,
            features=self._options.features(self._tokenizer.vocab_size),
            shards=[result.shard for result in results],
            tokenizer=self._plan["tokenizer"],
            options=self._plan["options"],
            statistics=summarize(spill.counts, counts, self._options),
        )
