# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a multiple-choice task, and records of questions: a sequence for each option."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.data import records
from albert_tf.data.record_cache import cached_records
from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress
from albert_tf.tasks.multiple_choice.data import RACE_GROUPS, MultipleChoiceExample
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import check_integer

#: The groups by their `group_ids`; "" for questions without one.
GROUPS = ("", *RACE_GROUPS)
#: Most options of a question; each is named by a letter.
MAX_CHOICES = 26
_CHUNK = 512
#: Part of the cache's key: raise it when the same questions give other records.
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class MultipleChoiceSpec:
    """Settings of a multiple-choice task, saved with the model.

    Attributes:
      num_choices: options of every question.
      max_seq_length: longest sequence, in tokens; the text is cut to fit.
      max_qa_length: longest question and option together, in tokens; they lose their beginning.

    Raises:
      AlbertError: a value is out of range.
    """

    num_choices: int = 4
    max_seq_length: int = 512
    max_qa_length: int = 128

    def __post_init__(self) -> None:
        """Checks the values."""
        for name in ("num_choices", "max_seq_length", "max_qa_length"):
            check_integer(name, getattr(self, name))
        if not 2 <= self.num_choices <= MAX_CHOICES:
            raise AlbertError(f"num_choices={self.num_choices} must be 2 to {MAX_CHOICES}.")
        # [CLS], two [SEP] and at least one token of the text.
        if not 1 <= self.max_qa_length <= self.max_seq_length - 4:
            raise AlbertError(
                f"max_qa_length={self.max_qa_length} does not fit: with max_seq_length="
                f"{self.max_seq_length} it must be 1 to {self.max_seq_length - 4}."
            )


def default_qa_length(max_seq_length: int) -> int:
    """Returns the default of `max_qa_length`: 128, or half of `max_seq_length` if that is less."""
    return min(128, max_seq_length // 2)


def option_text(question: str, option: str) -> str:
    """Joins a question and an option to one text.

    The option replaces every blank of the question, a run of underscores; without a blank it
    follows the question. The release replaces each underscore, so that "____" becomes four times
    the option (google-research/albert race_utils.convert_single_example); for blanks of a single
    underscore, as in RACE, the result is the same.
    """
    if "_" in question:
        return re.sub("_+", lambda _: option, question)
    return f"{question} {option}" if question else option


def record_features(num_choices: int) -> dict[str, records.FeatureSpec]:
    """Returns the records' layout: a row for each option; `label_ids` is -1 without a label."""
    number = records.FeatureSpec("int64")
    return records.sequence_features(num_choices, label_ids=number, group_ids=number)


def build_records(
    folder: str,
    examples: Sequence[MultipleChoiceExample],
    tokenizer: Tokenizer,
    spec: MultipleChoiceSpec,
    shuffle_seed: int | None = None,
) -> str:
    """Writes the questions as records, unless the same records are cached.

    Args:
      folder: folder of the cache, see record_cache.
      examples: the questions.
      tokenizer: converts texts to ids.
      spec: settings of the task.
      shuffle_seed: shuffles the questions; None keeps their order. Training needs it: the files
        are sorted by school, and the input pipeline only shuffles nearby records.

    Returns:
      Path of the record file. Its manifest has the statistics `examples`, `contexts`, `groups`,
      `mean_length` (of the sequences), `longest` (before cutting), `truncated` (questions whose
      text is cut) and `truncated_options`.
    """
    contexts: dict[str, int] = {}
    context_of = [contexts.setdefault(example.context, len(contexts)) for example in examples]
    features = record_features(spec.num_choices)
    key = {
        "format": _FORMAT,
        **dataclasses.asdict(spec),
        "shuffle_seed": shuffle_seed,
        "content": _content_hash(examples, contexts),
    }

    def encode(statistics: dict[str, Any]) -> Iterator[bytes]:
        order = np.arange(len(examples))
        if shuffle_seed is not None:
            np.random.default_rng(shuffle_seed).shuffle(order)
        texts = _encode_contexts(tokenizer, list(contexts))
        chunks: list[tuple[np.ndarray, ...]] = []
        with Progress("Tokenizing questions", len(examples), "question") as progress:
            for begin in range(0, len(order), _CHUNK):
                rows = order[begin : begin + _CHUNK]
                chosen = [examples[row] for row in rows]
                chosen_texts = [texts[context_of[row]] for row in rows]
                columns, lengths = featurize(tokenizer, chosen, chosen_texts, spec)
                chunks.append(lengths)
                yield from records.encode_examples(columns, features)
                progress.update(len(rows))
        text, answer, kept, sequence = map(np.concatenate, zip(*chunks))
        groups = collections.Counter(example.group for example in examples)
        statistics.update(
            examples=len(examples),
            contexts=len(contexts),
            groups={group: groups[group] for group in GROUPS if groups[group]},
            mean_length=float(sequence.mean()),
            longest=int((text + answer + 3).max()),
            truncated=int((kept < text).any(axis=1).sum()),
            truncated_options=int((answer > spec.max_qa_length).sum()),
        )

    return cached_records(folder, "multiple_choice", key, features, tokenizer, encode)


def featurize(
    tokenizer: Tokenizer,
    examples: Sequence[MultipleChoiceExample],
    texts: Sequence[np.ndarray],
    spec: MultipleChoiceSpec,
) -> tuple[dict[str, Any], tuple[np.ndarray, ...]]:
    """Makes the sequences [CLS] text [SEP] question and option [SEP] of every option.

    Question and option keep their last `max_qa_length` tokens; the text keeps its first tokens, up
    to `max_seq_length` (google-research/albert race_utils.convert_single_example).

    Args:
      tokenizer: converts texts to ids.
      examples: n questions.
      texts: the ids of each question's context, int32 [any length].
      spec: settings of the task.

    Returns:
      Columns of `record_features`, and lengths in tokens, each [n, options] or [n, 1]: of the text,
      of question and option, of what is kept of the text, and of the sequence.
    """
    shape = len(examples), spec.num_choices
    answers = tokenizer.encode_batch(
        [option_text(e.question, option) for e in examples for option in e.options]
    )
    ids: list[np.ndarray] = []
    first, lengths = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, text in enumerate(texts):
        parts: list[np.ndarray] = []
        for choice in range(spec.num_choices):
            answer = answers[row * spec.num_choices + choice][-spec.max_qa_length :]
            kept = text[: spec.max_seq_length - 3 - len(answer)]
            parts.append(join_segments(tokenizer, kept, answer))
            first[row, choice] = len(kept) + 2
            lengths[row, choice] = len(parts[-1])
        ids.append(np.concatenate(parts))
    labels = [-1 if example.label is None else example.label for example in examples]
    columns = {
        "input_ids": ids,
        "row_lengths": lengths,
        "first_lengths": first,
        "label_ids": np.array(labels, np.int64),
        "group_ids": np.array([GROUPS.index(example.group) for example in examples], np.int64),
    }
    text_lengths = np.array([len(text) for text in texts])[:, None]
    answer_lengths = np.array([len(answer) for answer in answers]).reshape(shape)
    return columns, (text_lengths, answer_lengths, first - 2, lengths)


def _encode_contexts(tokenizer: Tokenizer, contexts: Sequence[str]) -> list[np.ndarray]:
    """Tokenizes every text once, however many questions and options share it."""
    encoded: list[np.ndarray] = []
    with Progress("Tokenizing texts", len(contexts), "text") as progress:
        for begin in range(0, len(contexts), _CHUNK):
            chunk = tokenizer.encode_batch(contexts[begin : begin + _CHUNK])
            encoded += [np.array(ids, np.int32) for ids in chunk]
            progress.update(len(chunk))
    return encoded


def _content_hash(examples: Sequence[MultipleChoiceExample], contexts: dict[str, int]) -> str:
    digest = hashlib.sha256()
    for context in contexts:
        digest.update(json.dumps(context).encode() + b"\n")
    for e in examples:
        row = [contexts[e.context], e.question, e.options, e.label, e.group]
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()
