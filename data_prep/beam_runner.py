# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a build of pretraining records as Apache Beam pipelines, on one machine or many.

There are two pipelines, as a build has two parts. The first tokenizes each text file, deals all
documents to buckets in a single step (the only one that needs their order, and it reads their
lengths only), and groups them by bucket. The second writes the shards. Buckets and shards are the
same as with the local runner, to the byte.

The steps hand their results over in files of the build's folder, except for the documents on their
way to their buckets. So a build that was stopped keeps its tokenized texts, and later its shards.

A text is one file; its number is its position in the corpus. In the build's folder a tokenized text
is three files: the documents as in a run file, their sizes (int32 [documents, 2]: numbers in the
first file, tokens), and a JSON file with the counts, which is written last and marks the text as
finished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import logging
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners import create_runner
from apache_beam.runners.runner import PipelineState
from apache_beam.utils.shared import Shared

from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import files
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from data_prep.documents import read_blocks, split_documents, tokenize_block
from data_prep.encoding import Context
from data_prep.pretraining_options import PretrainingOptions
from data_prep.pretraining_shards import ShardTask, write_pretraining_shard
from data_prep.spill import RUN_PER_BUCKET, Dealer, Runs, Spill, write_run

#: An AlbertError in the traceback of a worker.
_ALBERT_ERROR = re.compile(r"albert_tf\.errors\.AlbertError: (.*)")
#: Describes the corpus once its documents are dealt.
_DEALT = "dealt.json"
_TOKENS = Metrics.counter("create_pretraining_data", "tokens")


class BeamRunner:
    """See pretraining_build.Runner."""

    def __init__(self, context: Context, folder: str, beam_options: Sequence[str] = ()) -> None:
        """Prepares the pipelines.

        Args:
          context: tokenizer and options.
          folder: the build's working folder.
          beam_options: Beam's pipeline options, as on a command line; by default its DirectRunner.

        Raises:
          AlbertError: the options are malformed, or Dataflow would write to this machine's disk.
        """
        self._context = context
        self._folder = folder
        self._beam_options = list(beam_options)
        self._shared = Shared()
        _limit_logs()
        self._name = _runner_name(self._beam_options)
        self._check_reachable([os.path.dirname(folder)])

    def _check_reachable(self, paths: Sequence[str]) -> None:
        """Raises AlbertError for paths on this machine if Dataflow runs the pipelines.

        On other clusters, a path without a scheme may be on a shared file system; only the workers
        can find out, see `_Step`.
        """
        local = [path for path in paths if files.is_local(path)]
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
        """Tokenizes each file, and deals their documents to buckets."""
        self._check_reachable(input_files)
        paths = list(input_files)
        deal = functools.partial(_deal, num_texts=len(paths), num_buckets=num_buckets)

        def build(pipeline: beam.Pipeline) -> None:
            _ = (
                pipeline
                | beam.Create(list(enumerate(paths)))
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
        return Spill.load(os.path.join(self._folder, _DEALT))

    def write_shards(self, tasks: Sequence[ShardTask], all_tokens: int) -> None:
        """Writes shards; the pipeline's counter `tokens` shows the progress."""

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

    def _run(self, verb: str, amount: str, build: Callable[[beam.Pipeline], None]) -> None:
        """Runs a pipeline to its end.

        Raises:
          AlbertError: a worker raised it.
          StoppedError: the pipeline failed for another reason.
        """
        self._context.tokenizer.save(self._folder)
        print(f"{verb} {amount} with Beam's {self._name}", file=sys.stderr, flush=True)
        result = None
        try:
            pipeline = beam.Pipeline(options=PipelineOptions(self._beam_options))
            build(pipeline)
            result = pipeline.run()
            state = result.wait_until_finish()
        except KeyboardInterrupt:
            if result is not None:
                result.cancel()
            raise
        except Exception as error:
            raise _as_albert_error(error, verb) from error
        if state != PipelineState.DONE:
            raise StoppedError(
                f"Beam's pipeline to {verb} ended as {state}, its log says why; the same command "
                "continues it."
            )


def _runner_name(beam_options: Sequence[str]) -> str:
    """Returns the name of the runner in Beam's options; raises AlbertError if they are wrong."""
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            options = PipelineOptions(beam_options)
            options.get_all_options()
        name = options.view_as(StandardOptions).runner or StandardOptions.DEFAULT_RUNNER
        create_runner(name)
    except SystemExit as stop:
        reason = usage.getvalue().strip().rpartition("error: ")[2]
        raise AlbertError(f"`beam_options`: {reason}.") from stop
    except (ImportError, ValueError) as error:
        raise AlbertError(f"`beam_options`: {str(error).rstrip('.')}.") from error
    return name


def _limit_logs() -> None:
    """Limits Beam's logs to warnings and to Dataflow's messages about its job."""
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)
    # Workers in this process log a traceback of each error; an AlbertError's message is enough.
    logging.getLogger("apache_beam.runners.common").addFilter(_is_unexpected)


def _is_unexpected(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], AlbertError))


def _as_albert_error(error: Exception, verb: str) -> AlbertError:
    """Returns the AlbertError that a worker raised, which some runners wrap in a traceback."""
    text = re.sub(r" \[while running '[^']*'\]", "", str(error)).strip()
    messages = [text] if isinstance(error, AlbertError) else _ALBERT_ERROR.findall(text)
    if messages:
        return AlbertError(messages[-1])
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    reason = lines[-1] if lines else type(error).__name__
    return StoppedError(
        f"Beam's pipeline to {verb} failed ({reason}); the same command continues it."
    )


class _Step(beam.DoFn):
    """One step of a pipeline: a function of (step, element).

    Attributes:
      folder: the build's working folder.
      context: the options, and the tokenizer from that folder; set on the worker.
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
        """Calls the function.

        Raises:
          AlbertError: the worker does not see the build's folder, or the function raised it.
        """
        self.context = self._shared.acquire(self._load_context)
        return self._function(self, element)

    def _load_context(self) -> Context:
        """Loads the context, once per process; an error in `setup` would stop one bundle only."""
        path = os.path.join(self.folder, SPEC_FILE)
        if not files.exists(path):
            raise AlbertError(
                f"The worker on {socket.gethostname()} does not see {self.folder}; all workers "
                "have to share the file system of the input and the output, such as gs://."
            )
        return Context(Tokenizer.from_file(path), self._options)


def _path(step: _Step, number: int, suffix: str) -> str:
    return os.path.join(step.folder, f"text-{number:05d}.{suffix}")


def _tokenize(step: _Step, text: tuple[int, str]) -> Iterator[tuple[int, int]]:
    """Tokenizes a text, unless this has been done before."""
    import tensorflow as tf

    number, text_file = text
    counts_path = _path(step, number, "json")
    if not files.exists(counts_path):
        counts: Counter[str] = Counter()
        sizes = []
        tokenizer = step.context.tokenizer
        tokenized = (tokenize_block(block, tokenizer) for block in read_blocks([text_file]))
        with (
            files.atomic_path(_path(step, number, "bin")) as temporary,
            tf.io.gfile.GFile(temporary, "wb") as f,
        ):
            f.write(b"")  # GFile does not create the file before the first write.
            for document in split_documents(tokenized, counts):
                numbers = np.concatenate(document.arrays())
                f.write(numbers.astype("<i4").tobytes())
                sizes.append((len(numbers), len(document.tokens)))
        files.write_bytes(_path(step, number, "sizes"), np.array(sizes, "<i4").tobytes())
        files.write_json(counts_path, dict(counts))
    yield 0, number


def _sizes(step: _Step, number: int) -> np.ndarray:
    data = files.read_bytes(_path(step, number, "sizes"), "build state")
    return np.frombuffer(data, "<i4").reshape(-1, 2)


@dataclasses.dataclass(frozen=True)
class _DealtText:
    """Where a tokenized text's documents go.

    Attributes:
      number: number of the text.
      first_document: Document.number of its first document; within the text they count from 0.
      first_position: position of its first document, or part of one, among those of the corpus.
      buckets: int32 [documents]: the bucket of each.
    """

    number: int
    first_document: int
    first_position: int
    buckets: np.ndarray


def _deal(
    step: _Step, texts: tuple[int, Iterable[int]], num_texts: int, num_buckets: int
) -> Iterator[_DealtText]:
    """Deals the documents of all texts in order, and finally describes the corpus in a file."""
    dealer = Dealer(num_buckets)
    counts: Counter[str] = Counter()
    position = 0
    for number in range(num_texts):
        tokens = _sizes(step, number)[:, 1].tolist()
        buckets = np.fromiter(map(dealer.deal, tokens), np.int32, len(tokens))
        yield _DealtText(number, counts["documents"], position, buckets)
        counts.update(files.read_json(_path(step, number, "json"), "build state"))
        position += len(tokens)
    spill = Spill(RUN_PER_BUCKET, dealer.bucket_tokens(), dict(counts))
    spill.save(os.path.join(step.folder, _DEALT))


def _scatter(step: _Step, text: _DealtText) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Yields for each document: bucket, (position in the corpus, its bytes in a run file)."""
    import tensorflow as tf

    sizes = _sizes(step, text.number)[:, 0].tolist()
    with tf.io.gfile.GFile(_path(step, text.number, "bin"), "rb") as f:
        for i, (size, bucket) in enumerate(zip(sizes, text.buckets.tolist())):
            numbers = np.frombuffer(f.read(4 * size), "<i4").copy()
            numbers[0] += text.first_document
            yield bucket, (text.first_position + i, numbers.tobytes())


def _gather(step: _Step, bucket: tuple[int, Iterable[tuple[int, bytes]]]) -> Iterable[Any]:
    """Writes the run file of a bucket from its documents in any order."""
    number, documents = bucket
    arrays = [np.frombuffer(numbers, "<i4") for _, numbers in sorted(documents)]
    write_run(Runs.path(step.folder, number, 0), [arrays])
    return ()


def _write_shard(step: _Step, task: ShardTask) -> Iterable[Any]:
    write_pretraining_shard(step.context, task, _TOKENS.inc)
    return ()
