# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints pretraining records as text, with the predicted words marked.

  python -m data_prep.inspect_records --input_file=records --num_examples=2

[word|MASK] is a piece replaced by [MASK], [word|kept] a predicted piece that was not replaced, and
[word|other] a piece replaced by another one. Compact records are shown as text, because training
draws their masks.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator, Mapping
from itertools import chain, islice

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.data import records
from albert_tf.errors import AlbertError, printable
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import WORDPIECE, Tokenizer
from data_prep.verify_records import RecordFiles, define_record_flags, find_records

COLUMNS = 80
_MEANINGS = {
    "sop": ("in order", "swapped"),
    "nsp": ("B follows A", "B is from another document"),
    "none": ("one segment", "?"),
}


def define_flags() -> None:
    """Defines the flags."""
    define_record_flags()
    flags.DEFINE_integer("num_examples", 3, "Number of records to print.", lower_bound=1)


def inspect(shards: RecordFiles, num_examples: int) -> Iterator[str]:
    """Yields records as text.

    Raises:
      AlbertError: these are not pretraining records, the tokenizer is unknown, or a record is
        damaged.
    """
    import tensorflow as tf

    if shards.features.keys().isdisjoint({"text_ids", "masked_lm_positions"}):
        raise AlbertError(f"{shards.paths[0]} does not hold pretraining records.")
    if not shards.tokenizer:
        raise AlbertError("There is no tokenizer.json beside the records; give `vocab_file`.")
    options = shards.manifest.options if shards.manifest else {}
    objective = options.get("sentence_objective", "sop")
    examples = chain.from_iterable(map(records.read_examples, shards.paths))
    for number, example in enumerate(islice(examples, num_examples)):
        parsed = records.parse_columns(tf.constant([example]), shards.features)
        columns = {name: value.numpy()[0] for name, value in parsed.items()}
        yield f"record {number}: {format_record(columns, shards.tokenizer, objective)}"


def format_record(columns: Mapping[str, np.ndarray], tokenizer: Tokenizer, objective: str) -> str:
    """Returns one record as text, in lines of at most 80 columns where words allow.

    Args:
      columns: one record's features under their record names.
      tokenizer: the records' tokenizer.
      objective: "sop", "nsp" or "none": the meaning of the sentence label.
    """
    predicted: dict[int, int] = {}
    if "text_ids" in columns:
        a, b = columns["segment_lengths"].tolist()
        text = columns["text_ids"][: a + b].astype(np.int32)
        ids = join_segments(tokenizer, text[:a], text[a:] if b else None)
        a_end, length, capacity = a + 2, len(ids), len(columns["text_ids"])
        notes = "not masked or swapped yet" if objective == "sop" else "not masked yet"
    else:
        ids = columns["input_ids"]
        length, capacity = int(columns["input_mask"].sum()), len(ids)
        a_end = length - int(columns["segment_ids"].sum())
        used = columns["masked_lm_weights"] > 0
        positions = columns["masked_lm_positions"][used].tolist()
        predicted = dict(zip(positions, columns["masked_lm_ids"][used].tolist()))
        label = int(columns["next_sentence_labels"])
        notes = f"{len(predicted)} predicted, label {label} ({_MEANINGS[objective][label]})"
    lines = [f"{length} of {capacity} tokens, {notes}"]
    for name, positions in (("A", range(a_end)), ("B", range(a_end, length))):
        if positions:
            text = f"{name}  {_text(ids, predicted, positions, tokenizer)}"
            lines.append(
                textwrap.fill(text, COLUMNS, subsequent_indent="   ", break_on_hyphens=False)
            )
    return "\n".join(lines)


def _text(
    ids: np.ndarray, predicted: Mapping[int, int], positions: range, tokenizer: Tokenizer
) -> str:
    """Joins pieces to words, with predicted pieces in brackets."""
    text = ""
    for position in positions:
        present = int(ids[position])
        piece = tokenizer.id_to_piece(predicted.get(position, present))
        if tokenizer.spec.kind == WORDPIECE:
            begins, piece = not piece.startswith("##"), piece.removeprefix("##")
        else:
            begins, piece = piece.startswith("▁"), piece.removeprefix("▁")
        if present == tokenizer.sep_id and position not in predicted:
            begins = True
        if position in predicted:
            piece = f"[{piece or '▁'}|{_replacement(present, predicted[position], tokenizer)}]"
        text += (" " if begins else "") + piece
    return printable(text.strip())


def _replacement(present: int, original: int, tokenizer: Tokenizer) -> str:
    if present == tokenizer.mask_id:
        return "MASK"
    if present == original:
        return "kept"
    return tokenizer.id_to_piece(present).removeprefix("▁")


def _main() -> None:
    shards = find_records(flags.FLAGS.input_file, flags.FLAGS.vocab_file)
    for text in inspect(shards, flags.FLAGS.num_examples):
        print(text, end="\n\n")


main = functools.partial(script.run, _main, define_flags)

if __name__ == "__main__":
    main()
