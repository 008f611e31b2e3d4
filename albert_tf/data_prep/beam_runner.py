# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a build of pretraining records as Apache Beam pipelines, on one machine or many.

There are two pipelines, as a build has two parts. The first tokenizes each text file and groups the
documents by bucket; the second writes the shards. Buckets and shards are the same as with the local
runner, to the byte. A build that was stopped keeps its buckets once all are there, and its shards.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineState

from albert_tf.data_prep.documents import bucket_of, bucket_path, read_blocks, tokenize
from albert_tf.data_prep.pretraining_shards import Context, ShardTask, write_pretraining_shard
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import files
from albert_tf.tokenization.tokenizer import Tokenizer

#: An AlbertError in the traceback of a worker.
_ALBERT_ERROR = re.compile(r"albert_tf\.errors\.AlbertError: (.*)")


class BeamRunner(contextlib.AbstractContextManager):
    """Runs a build with Beam; see build_pretraining_data.

    Raises:
      AlbertError: the options are malformed.
    """

    def __init__(self, context: Context, folder: str, beam_options: Sequence[str] = ()) -> None:
        self._context, self._folder = context, folder
        self._options = _parse(beam_options)
        logging.getLogger("apache_beam").setLevel(logging.WARNING)
        # Dataflow's messages about its job.
        logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)
        # Workers in this process log a traceback of each error, which is raised anyway.
        logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)

    def __exit__(self, *exception: object) -> None:
        pass

    def tokenize(self, input_files: Sequence[str], num_buckets: int) -> None:
        """Tokenizes each file in a worker, which also writes the buckets."""
        texts = list(enumerate(input_files))

        def build(pipeline) -> None:
            _ = (
                pipeline
                | beam.Create(texts)
                | "a worker for each text" >> beam.Reshuffle()
                | "tokenize" >> beam.FlatMap(_tokenize, self._context.tokenizer, num_buckets)
                | "group by bucket" >> beam.GroupByKey()
                | "write bucket" >> beam.Map(_write_bucket, self._folder)
            )

        self._run("tokenize", f"{len(texts)} files", build)

    def write_shards(self, tasks: Sequence[ShardTask]) -> None:
        """Writes shards in the workers."""

        def build(pipeline) -> None:
            _ = (
                pipeline
                | beam.Create(list(tasks))
                | "a worker for each shard" >> beam.Reshuffle()
                | "write shard"
                >> beam.Map(
                    lambda task, context: write_pretraining_shard(context, task, lambda _: None),
                    self._context,
                )
            )

        self._run("build", f"{len(tasks)} shards", build)

    def _run(self, verb: str, amount: str, build: Callable[[beam.Pipeline], None]) -> None:
        """Runs a pipeline to its end."""
        runner = self._options.view_as(StandardOptions).runner or StandardOptions.DEFAULT_RUNNER
        print(f"{verb} {amount} with Beam's {runner}", file=sys.stderr, flush=True)
        result = None
        try:
            pipeline = beam.Pipeline(options=self._options)
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


def _parse(beam_options: Sequence[str]) -> PipelineOptions:
    """Parses Beam's options; raises AlbertError if they are wrong."""
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            options = PipelineOptions(beam_options)
            options.get_all_options()
            beam.Pipeline(options=options)
    except (SystemExit, ImportError, ValueError) as error:
        reason = (usage.getvalue() or str(error)).rpartition("error: ")[2].strip(".\n")
        raise AlbertError(f"`beam_options`: {reason}.") from error
    return options


def _as_albert_error(error: Exception, verb: str) -> AlbertError:
    """Returns the AlbertError that a worker raised, which some runners wrap in a traceback."""
    text = re.sub(r" \[while running '[^']*'\]", "", str(error)).strip()
    if isinstance(error, AlbertError):
        return AlbertError(text)
    if messages := _ALBERT_ERROR.findall(text):
        return AlbertError(messages[-1])
    reason = (text or type(error).__name__).splitlines()[-1]
    return StoppedError(
        f"Beam's pipeline to {verb} failed ({reason}); the same command continues it."
    )


def _tokenize(
    text: tuple[int, str], tokenizer: Tokenizer, num_buckets: int
) -> Iterator[tuple[int, tuple[int, int, bytes]]]:
    """Yields for each document its bucket and (text, number in the text, numbers)."""
    number, path = text
    count = 0
    for _, lines in read_blocks([path]):
        for document in tokenize(lines, tokenizer):
            yield bucket_of(number, count, num_buckets), (number, count, document.tobytes())
            count += 1


def _write_bucket(bucket: tuple[int, Iterable[tuple[int, int, bytes]]], folder: str) -> None:
    if not files.isdir(folder):
        raise AlbertError(
            f"The worker on {socket.gethostname()} does not see {folder}; all workers have to "
            "share the file system of the input and the output, such as gs://."
        )
    number, documents = bucket
    content = b"".join(numbers for _, _, numbers in sorted(documents))
    files.write_bytes(bucket_path(folder, number), content)
