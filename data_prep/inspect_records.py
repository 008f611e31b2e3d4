# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints pretraining or classification records as text, with the predicted words marked.

  python -m data_prep.inspect_records --input_file=records --num_examples=2

[word|MASK] is a piece replaced by [MASK], [word|kept] one to be predicted though it is there, and
[word|other] one replaced by another. Compact records are shown as text, since their masks are drawn
while training.
"""

from __future__ import annotations

if __name__ == "__main__":  # Before the other imports, which take a while.
    from albert_tf.io.interrupts import end_on_interrupt

    end_on_interrupt()

import textwrap
from collections.abc import Iterator, Mapping
from itertools import chain, islice

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import check_records, check_vocabulary, define_path, define_paths
from albert_tf.data import records
from albert_tf.errors import AlbertError
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import WORDPIECE, Tokenizer
from data_prep.record_files import RecordFiles, find_records

COLUMNS = 80
_MEANINGS = {
    "sop": ("in order", "swapped"),
    "nsp": ("B follows A", "B is from another document"),
    "none": ("one segment", "?"),
}


def define_flags() -> None:
    """Defines the flags."""
    define_paths(
        "input_file",
        None,
        "Comma list of TFRecord files, globs, and folders with a manifest.json.",
        required=True,
        check=check_records,
    )
    flags.DEFINE_integer("num_examples", 3, "Records to print.", lower_bound=1)
    flags.DEFINE_integer("skip", 0, "Records to pass over first.", lower_bound=0)
    define_path(
        "vocab_file",
        None,
        "SentencePiece model, WordPiece vocabulary or tokenizer.json of the records. Default: the "
        "tokenizer.json beside them.",
        check=check_vocabulary,
    )


def inspect(found: RecordFiles, num_examples: int, skip: int = 0) -> Iterator[str]:
    """Yields records as text.

    Raises:
      AlbertError: the tokenizer is not known, or a record is damaged.
    """
    import tensorflow as tf

    if not found.tokenizer:
        raise AlbertError("There is no tokenizer.json beside the records; give --vocab_file.")
    objective = (found.manifest.options if found.manifest else {}).get("sentence_objective", "sop")
    examples = chain.from_iterable(map(records.read_examples, found.paths))
    for number, example in enumerate(islice(examples, skip, skip + num_examples), start=skip):
        parsed = records.parse_columns(tf.constant([example]), found.features)
        columns = {name: value.numpy()[0] for name, value in parsed.items()}
        yield f"record {number}: {format_record(columns, found.tokenizer, objective)}"


def format_record(columns: Mapping[str, np.ndarray], tokenizer: Tokenizer, objective: str) -> str:
    """One record as text, at most 80 columns wide where words allow.

    Args:
      columns: one record's features under their record names.
      tokenizer: the one it was made with.
      objective: "sop", "nsp" or "none": what the sentence label means.
    """
    predicted: dict[int, int] = {}
    if "text_ids" in columns:
        ids, a_end, length = _with_specials(columns, tokenizer)
        head = f"{length} of {len(columns['text_ids'])} tokens, not masked"
        if objective == "sop":
            head += " or swapped"
        return "\n".join([f"{head} yet", *_segments(ids, predicted, a_end, length, tokenizer)])
    ids = columns["input_ids"]
    length = int(columns["input_mask"].sum())
    a_end = length - int(columns["segment_ids"].sum())
    head = f"{length} of {len(ids)} tokens"
    if "masked_lm_positions" in columns:
        used = columns["masked_lm_weights"] > 0
        positions = columns["masked_lm_positions"][used].tolist()
        predicted = dict(zip(positions, columns["masked_lm_ids"][used].tolist()))
        label = int(columns["next_sentence_labels"])
        head += f", {len(predicted)} predicted, label {label} ({_MEANINGS[objective][label]})"
    else:
        head += f", label {columns['label_ids']:g}"
    return "\n".join([head, *_segments(ids, predicted, a_end, length, tokenizer)])


def _with_specials(
    columns: Mapping[str, np.ndarray], tokenizer: Tokenizer
) -> tuple[np.ndarray, int, int]:
    """A compact record's ids with [CLS] and [SEP], the end of A and of all."""
    a, b = columns["segment_lengths"].tolist()
    text = columns["text_ids"][: a + b].astype(np.int32)
    ids = join_segments(tokenizer, text[:a], text[a:] if b else None)
    return ids, a + 2, len(ids)


def _segments(
    ids: np.ndarray, predicted: Mapping[int, int], a_end: int, length: int, tokenizer: Tokenizer
) -> Iterator[str]:
    """Segments A and B as paragraphs."""
    for name, start, end in (("A", 0, a_end), ("B", a_end, length)):
        if end > start:
            text = _text(ids, predicted, range(start, end), tokenizer)
            yield textwrap.fill(
                f"{name}  {text}", COLUMNS, subsequent_indent="   ", break_on_hyphens=False
            )


def _text(
    ids: np.ndarray, predicted: Mapping[int, int], positions: range, tokenizer: Tokenizer
) -> str:
    """Pieces put together to words again, those to be predicted in brackets."""
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
    return text.strip()


def _replacement(present: int, original: int, tokenizer: Tokenizer) -> str:
    if present == tokenizer.mask_id:
        return "MASK"
    if present == original:
        return "kept"
    return tokenizer.id_to_piece(present).removeprefix("▁")


def _main() -> None:
    values = flags.FLAGS
    found = find_records(values.input_file, values.vocab_file)
    printed = False
    for text in inspect(found, values.num_examples, values.skip):
        print(text, end="\n\n")
        printed = True
    if not printed:
        raise AlbertError(f"There are no more than {values.skip} records.")


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
