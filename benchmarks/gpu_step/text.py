# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Training batches straight from tokenized text, built while the device trains; no TensorFlow.

`text` stores the documents of a text once, in a quarter of the text's size. The record builder's
code (data_prep) then cuts them into examples and masks these, in other processes. So every pass
over the text has new examples and new masks.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import lzma
import multiprocessing
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from albert_tf.data.records import to_model_names
from albert_tf.data_prep.documents import DOCUMENT_END, Bucket
from albert_tf.data_prep.instances import create_instances
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.pretraining_shards import Context, compact_columns, masked_columns
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json
from albert_tf.tokenization.tokenizer import Tokenizer, TokenizerSpec
from benchmarks.gpu_step.program import BATCH, Program

#: Numbers have two bytes, and two of them stand for ends of sentences and documents.
_MAX_PIECES = (1 << 16) + DOCUMENT_END
#: Examples that are masked together.
_ROWS = 4096
#: The compressor looks for repetitions in as many bytes.
_DICTIONARY_BYTES = 1 << 28


def save_text(path: str, documents: Sequence[np.ndarray], tokenizer: Tokenizer) -> None:
    """Writes tokenized documents and their tokenizer as an .npz file compressed with LZMA.

    Raises:
      AlbertError: there are no documents, or the vocabulary is too large.
    """
    if not documents:
        raise AlbertError("The input files contain no text.")
    if tokenizer.vocab_size > _MAX_PIECES:
        raise AlbertError(
            f"The vocabulary has {tokenizer.vocab_size:,} pieces; at most {_MAX_PIECES:,} can be "
            "stored."
        )
    content = io.BytesIO()
    np.savez(
        content,
        numbers=(np.concatenate(documents) - DOCUMENT_END).astype(np.uint16),
        tokenizer=np.array(json.dumps(tokenizer.spec.to_dict())),
        vocabulary=np.frombuffer(tokenizer.data, np.uint8),
    )
    # Most numbers have two bytes.
    lzma2 = {
        "id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": _DICTIONARY_BYTES, "lc": 3, "lp": 1,
        "pb": 1,
    }  # fmt: skip
    temporary = f"{path}.tmp"
    with lzma.open(temporary, "wb", filters=[lzma2]) as f:
        f.write(content.getbuffer())
    os.replace(temporary, path)


@dataclasses.dataclass(frozen=True)
class Text:
    """What `save_text` wrote.

    Attributes:
      buckets: the documents, in parts of about the same size.
      tokenizer: of the documents.
      sha256: hex digest of the file.
    """

    buckets: Sequence[Bucket]
    tokenizer: Tokenizer
    sha256: str

    @classmethod
    def load(cls, path: str, num_buckets: int) -> Text:
        """Reads a file.

        Raises:
          AlbertError: it is missing, damaged or another kind of file.
        """
        try:
            with open(path, "rb") as f:
                stored = f.read()
            with np.load(io.BytesIO(lzma.decompress(stored))) as arrays:
                numbers = arrays["numbers"].astype(np.int32) + DOCUMENT_END
                spec = json.loads(str(arrays["tokenizer"]))
                vocabulary = arrays["vocabulary"].tobytes()
        except (OSError, lzma.LZMAError, zipfile.BadZipFile, KeyError, ValueError) as error:
            raise AlbertError(f"{path} is not a file that `text` wrote: {error}") from error
        tokenizer = Tokenizer(TokenizerSpec.from_dict(spec, path), vocabulary, path)
        documents = np.split(numbers, np.flatnonzero(numbers == DOCUMENT_END)[:-1] + 1)
        shares = [documents[bucket::num_buckets] for bucket in range(num_buckets)]
        buckets = [Bucket.from_numbers(np.concatenate(share)) for share in shares if share]
        return cls(buckets, tokenizer, hashlib.sha256(stored).hexdigest())


def _options(program: Program, others: Mapping[str, object]) -> PretrainingOptions:
    """Options of the record builder for the sequences of a program; AlbertError for wrong ones."""
    (predictions,) = (p.shape[1] for p in program.of_kind(BATCH) if p.name == "masked_lm_ids")
    length = program.step["seq_length"]
    own = {"max_seq_length": length, "max_predictions_per_seq": predictions}
    fixed = sorted(own.keys() & others.keys())
    if fixed:
        raise AlbertError(f"The program has its own `{fixed[0]}`; leave it out of the options.")
    share = {"masked_lm_prob": predictions / length}
    return from_json(PretrainingOptions, {**share, **others, **own}, "The options of examples")


#: Of a worker process, which inherits it.
_text: Text


class TextBatches:
    """Endless batches of examples that worker processes build from a text.

    A pass over the text builds examples of each kind from every document. Those of a bucket are
    shuffled together. They depend on the seed, the pass and the bucket, not on the workers.

    Args:
      path: of a file that `save_text` wrote.
      program: to feed.
      examples: for each kind of examples, options of the record builder by name. Their length is
        the program's; without `masked_lm_prob`, so is their share of masked positions.
      seed: of all random choices.
      workers: number of processes.
      num_buckets: parts of the text; a worker builds the examples of one at a time.

    Attributes:
      fingerprint: hex digest of the text, the options and the seed.

    Raises:
      AlbertError: an option does not exist, is out of range or does not suit the program; or the
        file is not such a file, or has another vocabulary than the program's model.
    """

    def __init__(
        self,
        path: str,
        program: Program,
        examples: Sequence[Mapping[str, object]],
        seed: int,
        workers: int,
        num_buckets: int = 32,
    ) -> None:
        global _text
        self._dtypes = {p.name: p.dtype for p in program.of_kind(BATCH)}
        self._rows = program.step["rows"]
        options = tuple(_options(program, each) for each in examples)
        # Workers share the memory of the text with this process.
        _text = Text.load(path, num_buckets)
        pieces = program.config["vocab_size"]
        if _text.tokenizer.vocab_size != pieces:
            raise AlbertError(
                f"{path} has a vocabulary of {_text.tokenizer.vocab_size} pieces, the program's "
                f"model one of {pieces}."
            )
        self._build = functools.partial(_build, options, seed)
        self._workers = workers
        identity = [_text.sha256, *(dataclasses.asdict(o) for o in options), seed, num_buckets]
        self.fingerprint = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        # Processes must be forked before the device's library starts its threads.
        context = multiprocessing.get_context("fork")
        self._pool = concurrent.futures.ProcessPoolExecutor(workers, context)
        self._jobs: collections.deque[concurrent.futures.Future] = collections.deque()
        self._numbers = itertools.count()
        self._submit()

    def _submit(self) -> None:
        while len(self._jobs) < 2 * self._workers:
            number = next(self._numbers)
            self._jobs.append(self._pool.submit(self._build, *divmod(number, len(_text.buckets))))

    def after(self, step: int) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches after some steps, in the program's types; call it once."""
        return itertools.islice(self._batches(), step, None)

    def _batches(self) -> Iterator[dict[str, np.ndarray]]:
        left: dict[str, np.ndarray] = {}
        while True:
            examples = self._jobs.popleft().result()
            self._submit()
            if left:
                examples = {name: np.concatenate([left[name], examples[name]]) for name in left}
            used = len(examples["input_mask"]) // self._rows * self._rows
            left = {name: column[used:] for name, column in examples.items()}
            for start in range(0, used, self._rows):
                rows = slice(start, start + self._rows)
                yield {name: examples[name][rows].astype(d) for name, d in self._dtypes.items()}

    def close(self) -> None:
        """Ends the workers."""
        self._pool.shutdown(cancel_futures=True)


def _build(
    options: Sequence[PretrainingOptions], seed: int, number: int, bucket_number: int
) -> dict[str, np.ndarray]:
    """The examples of a bucket in a pass: arrays [examples, …] by the models' names."""
    rng = np.random.default_rng([seed, number, bucket_number])
    bucket, tokenizer = _text.buckets[bucket_number], _text.tokenizer
    columns: dict[str, list[np.ndarray]] = collections.defaultdict(list)
    for each in options:
        context, counts = Context(tokenizer, each), collections.Counter()
        instances, _ = create_instances(bucket, tokenizer.word_starts, each, rng)
        masking_seed = int(rng.integers(1 << 62))
        for start in range(0, instances.shape[1], _ROWS):
            rows = instances[:, start : start + _ROWS]
            compact = compact_columns(bucket.tokens, rows, each.max_seq_length, tokenizer)
            masked = masked_columns(context, compact, rows[4], masking_seed, start, counts)
            del masked["token_boundary"]  # No model reads it.
            for name, column in to_model_names(masked).items():
                columns[name].append(column if column.dtype == bool else column.astype(np.uint16))
    order = rng.permutation(sum(map(len, columns["input_word_ids"])))
    return {name: np.concatenate(column)[order] for name, column in columns.items()}
