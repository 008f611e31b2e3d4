# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a build of pretraining records as Apache Beam pipelines, on one machine or many.

Two pipelines, as a build has two parts. The first tokenizes every text file, deals all documents to
buckets in one place (that is the one step that needs their order, and it reads their lengths only),
and groups them by bucket. The second writes the shards. Buckets and shards are the ones of the
local runner, to the byte.

What goes from step to step is in files of the build's folder, except for the documents on their way
to their buckets. So a build that was stopped keeps its tokenized texts, and later its shards.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners import create_runner
from apache_beam.runners.runner import PipelineState
from apache_beam.utils.shared import Shared

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from data_prep.pretraining_options import PretrainingOptions
from data_prep.pretraining_shards import Context, ShardTask, write_pretraining_shard
from data_prep.spill import Spill
from data_prep.tokenized_texts import (
    DealtText,
    deal_texts,
    dealt,
    gather_bucket,
    scatter_text,
    tokenize_text,
)

_ALBERT_ERROR = re.compile(r"albert_tf\.errors\.AlbertError: (.*)")
_TOKENS = Metrics.counter("create_pretraining_data", "tokens")


class BeamRunner:
    """See pretraining_build.Runner."""

    def __init__(self, context: Context, folder: str, arguments: Sequence[str] = ()) -> None:
        """Prepares the pipelines.

        Args:
          context: tokenizer and options.
          folder: the build's working folder.
          arguments: Beam's pipeline options, as on a command line; by default its DirectRunner.

        Raises:
          AlbertError: the options are malformed, or Dataflow is to write to this machine's disk.
        """
        self._context = context
        self._folder = folder
        self._arguments = list(arguments)
        self._shared = Shared()
        _limit_logs()
        self._name = _runner_name(self._arguments)
        self._check_reachable([os.path.dirname(folder)])

    def _check_reachable(self, paths: Sequence[str]) -> None:
        """Raises AlbertError for paths that workers of another machine can never see.

        Whether a path without a scheme is on a file system that others mount too, only the workers
        of a cluster can tell; see _Step._load. Dataflow's have none.
        """
        local = [path for path in paths if "://" not in path]
        if local and "dataflow" in self._name.lower():
            raise AlbertError(
                f"Dataflow's workers do not see {local[0]}; give paths on gs:// for the input and "
                "the output."
            )

    def __enter__(self) -> BeamRunner:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def tokenize(self, input_files: Sequence[str], num_buckets: int) -> Spill:
        """Tokenizes file by file (in one piece where documents go on in the next file)."""
        self._check_reachable(input_files)
        paths = list(input_files)
        texts = [paths] if self._context.options.official else [[path] for path in paths]
        deal = functools.partial(_deal, num_texts=len(texts), num_buckets=num_buckets)

        def build(pipeline: beam.Pipeline) -> None:
            _ = (
                pipeline
                | beam.Create(list(enumerate(texts)))
                | "a worker for each text" >> beam.Reshuffle()
                | "tokenize" >> self._step(_tokenize)
                | "wait for all texts" >> beam.GroupByKey()
                | "deal" >> self._step(deal)
                | "a worker for each dealt text" >> beam.Reshuffle()
                | "scatter" >> self._step(_scatter)
                | "group by bucket" >> beam.GroupByKey()
                | "write bucket" >> self._step(_gather)
            )

        self._run("tokenize", f"{len(paths)} files", build)
        return dealt(self._folder)

    def write_shards(self, tasks: Sequence[ShardTask], all_tokens: int) -> None:
        """Writes shards; the pipeline's counter `tokens` tells how far it is."""

        def build(pipeline: beam.Pipeline) -> None:
            _ = (
                pipeline
                | beam.Create(list(tasks))
                | "a worker for each shard" >> beam.Reshuffle()
                | "write shard" >> self._step(_write_shard)
            )

        self._run("build", f"{len(tasks)} shards", build)

    def _step(self, function: Callable[[_Step, Any], Iterable[Any]]) -> beam.ParDo:
        return beam.ParDo(_Step(function, self._context.options, self._folder, self._shared))

    def _run(self, what: str, amount: str, build: Callable[[beam.Pipeline], None]) -> None:
        """Runs a pipeline to its end.

        Raises:
          AlbertError: a worker raised it.
          StoppedError: the pipeline failed for another reason.
        """
        self._context.tokenizer.save(self._folder)
        print(f"{what} {amount} with Beam's {self._name}", file=sys.stderr, flush=True)
        result = None
        try:
            pipeline = beam.Pipeline(options=PipelineOptions(self._arguments))
            build(pipeline)
            result = pipeline.run()
            state = result.wait_until_finish()
        except KeyboardInterrupt:
            if result is not None:
                result.cancel()
            raise
        except Exception as error:
            raise _told(error, what) from error
        if state != PipelineState.DONE:
            raise StoppedError(
                f"Beam's pipeline to {what} ended as {state}, its log says why; the same command "
                "continues it."
            )


def _runner_name(arguments: Sequence[str]) -> str:
    """The runner that Beam's options name; AlbertError if it has none such, or they are wrong."""
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            options = PipelineOptions(arguments)
            options.get_all_options()
        name = options.view_as(StandardOptions).runner or StandardOptions.DEFAULT_RUNNER
        create_runner(name)
    except SystemExit as stop:
        reason = usage.getvalue().strip().rpartition("error: ")[2]
        raise AlbertError(f"--beam_options: {reason}.") from stop
    except (ImportError, ValueError) as error:
        raise AlbertError(f"--beam_options: {str(error).rstrip('.')}.") from error
    return name


def _limit_logs() -> None:
    """Of Beam's logs, shows warnings, and what Dataflow says of its job."""
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)
    # Workers in this process log a traceback of what they raise; the sentence is enough.
    logging.getLogger("apache_beam.runners.common").addFilter(_is_unexpected)


def _is_unexpected(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], AlbertError))


def _told(error: Exception, what: str) -> AlbertError:
    """The AlbertError that a worker raised, as the runner passes it on: often in a traceback."""
    text = re.sub(r" \[while running '[^']*'\]", "", str(error)).strip()
    found = [text] if isinstance(error, AlbertError) else _ALBERT_ERROR.findall(text)
    if found:
        return AlbertError(found[-1])
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    reason = lines[-1] if lines else type(error).__name__
    return StoppedError(
        f"Beam's pipeline to {what} failed ({reason}); the same command continues it."
    )


class _Step(beam.DoFn):
    """A step's function, with what it needs on a worker.

    Attributes:
      folder: the build's working folder.
      context: the options, and the tokenizer in that folder.
    """

    def __init__(
        self,
        function: Callable[[_Step, Any], Iterable[Any]],
        options: PretrainingOptions,
        folder: str,
        shared: Shared,
    ) -> None:
        self._function = function
        self._options = options
        self._shared = shared
        self.folder = folder

    def process(self, element: Any) -> Iterable[Any]:
        """Applies the function.

        Raises:
          AlbertError: the worker does not see the build's folder, or what the function raises.
        """
        self.context = self._shared.acquire(self._load)
        return self._function(self, element)

    def _load(self) -> Context:
        """What a process loads once, if it can; in `setup` a failure would stop one bundle only."""
        import tensorflow as tf

        path = os.path.join(self.folder, SPEC_FILE)
        if not tf.io.gfile.exists(path):
            raise AlbertError(
                f"The worker on {socket.gethostname()} does not see {self.folder}; all workers "
                "have to share the file system of --input_file and --output_dir, such as gs://."
            )
        return Context(Tokenizer.from_file(path), self._options)


def _tokenize(step: _Step, text: tuple[int, list[str]]) -> Iterator[tuple[int, int]]:
    number, paths = text
    tokenize_text(step.context, step.folder, number, paths)
    yield 0, number


def _deal(
    step: _Step, texts: tuple[int, Iterable[int]], num_texts: int, num_buckets: int
) -> Iterator[DealtText]:
    return deal_texts(step.folder, num_texts, num_buckets)


def _scatter(step: _Step, text: DealtText) -> Iterator[tuple[int, tuple[int, bytes]]]:
    return scatter_text(step.folder, text)


def _gather(step: _Step, bucket: tuple[int, Iterable[tuple[int, bytes]]]) -> Iterable[Any]:
    gather_bucket(step.folder, *bucket)
    return ()


def _write_shard(step: _Step, task: ShardTask) -> Iterable[Any]:
    write_pretraining_shard(step.context, task, _TOKENS.inc)
    return ()
