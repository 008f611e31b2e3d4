# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What exports that read text are probed with, answered by the host's tokenizer and the model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from albert_tf.data.context import InputContext
from albert_tf.data.pipeline import RecordSource
from albert_tf.export.self_check import Probe
from albert_tf.io.text_tables import TextExample
from albert_tf.keras2 import keras
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.classification import features as classification_features
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.multiple_choice import features as multiple_choice_features
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.tasks.squad.answering import QuestionAnswerer
from albert_tf.tokenization.tokenizer import Tokenizer

#: Words, signs, accents, numbers with the commas that ALBERT's tokenizer treats specially.
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "In 2019, 1,234 naïve readers asked: why so many layers, and so few weights?",
    "Ada wrote the first program in 1843, in London; nobody ran it.",
)
_QUESTIONS = ("Who jumps over the _ dog?", "How many readers?", "Who wrote it in 1843, and where?")
_OPTIONS = ("fox", "the lazy dog", "1,234 readers", "nobody", "London")
_LONG = 40


def _batches() -> Iterator[tuple[str, list[str]]]:
    """Batches of one and of three texts, of one sentence and of many, and what to call them."""
    for size in (1, len(_SENTENCES)):
        yield "a sentence", list(_SENTENCES[:size])
        # The sentences are numbered because windows with the same text would have equal scores.
        yield (
            f"{_LONG} sentences",
            [" ".join(f"{number} {text}" for number in range(_LONG)) for text in _SENTENCES[:size]],
        )


def _bytes(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts])


def _answers(
    task: FineTuningTask,
    model: keras.Model,
    build_records: Callable[[str], str],
    features: dict,
    sizes: Sequence[int],
) -> list[dict[str, np.ndarray]]:
    """Predicts examples that are read from records, as the runners do.

    Args:
      task: of the model.
      model: the model.
      build_records: writes the examples below a folder; returns the path of the records.
      features: of the records.
      sizes: number of examples in each probe, in order.

    Returns:
      For each probe, the outputs of `Task.predict` for its examples, [size, ...].
    """
    with tempfile.TemporaryDirectory() as folder:
        lengths = (task.spec.max_seq_length,)
        source = RecordSource([build_records(folder)], features, 0, lengths=lengths)
        found = [
            {**task.predict(model, batch), "example_index": batch["example_index"]}
            for batch in source.eval_input_fn(InputContext(len(_SENTENCES)))
        ]
    outputs = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    # Rows that fill the last batch have the index -1, and come first.
    order = np.argsort(outputs["example_index"], kind="stable")[-sum(sizes) :]
    ends = np.cumsum(sizes)
    return [
        {name: value[order[end - size : end]] for name, value in outputs.items()}
        for size, end in zip(sizes, ends)
    ]


def classifier_probes(task: TextClassificationTask, model: keras.Model) -> list[Probe]:
    """Single texts, and pairs."""
    labels = task.spec.labels
    inputs = [
        (length, texts, seconds)
        for length, texts in _batches()
        for seconds in (None, _SENTENCES[: len(texts)])
    ]
    examples = [
        TextExample("", text, second, None, "")
        for _, texts, seconds in inputs
        for text, second in zip(texts, seconds or [None] * len(texts))
    ]

    def build(folder: str) -> str:
        return classification_features.build_records(
            folder, examples, task.tokenizer, task.spec.max_seq_length, labels, labelled=False
        )

    features = classification_features.record_features(labels)
    sizes = [len(texts) for _, texts, _ in inputs]
    probes = []
    for (length, texts, seconds), found in zip(
        inputs, _answers(task, model, build, features, sizes)
    ):
        given = {"sentences": _bytes(texts)}
        if seconds:
            given["second_sentences"] = _bytes(seconds)
        if labels:
            best = [labels[i] for i in found["probabilities"].argmax(axis=-1)]
            expected = {"label": _bytes(best), "probabilities": found["probabilities"]}
        else:
            expected = {"value": found["values"]}
        probes.append(Probe(given, expected, length=length))
    return probes


def multiple_choice_probes(task: MultipleChoiceTask, model: keras.Model) -> list[Probe]:
    """Questions with as many options as the model was trained on."""
    choices = task.spec.num_choices
    options = tuple(_OPTIONS[i % len(_OPTIONS)] for i in range(choices))
    batches = list(_batches())
    examples = [
        MultipleChoiceExample("", text, question, options, 0, "", "")
        for _, texts in batches
        for text, question in zip(texts, _QUESTIONS)
    ]

    def build(folder: str) -> str:
        return multiple_choice_features.build_records(folder, examples, task.tokenizer, task.spec)

    features = multiple_choice_features.record_features(choices)
    sizes = [len(texts) for _, texts in batches]
    probes = []
    for (length, texts), found in zip(batches, _answers(task, model, build, features, sizes)):
        inputs = {
            "texts": _bytes(texts),
            "questions": _bytes(_QUESTIONS[: len(texts)]),
            "options": np.stack([_bytes(options)] * len(texts)),
        }
        expected = {"probabilities": found["probabilities"]}
        probes.append(Probe(inputs, expected, length=length))
    return probes


def squad_probes(answerer: QuestionAnswerer) -> list[Probe]:
    """Questions on contexts of one window and of several."""
    probes = []
    for length, contexts in _batches():
        questions = _QUESTIONS[: len(contexts)]
        found = [answerer.answer(q, c) for q, c in zip(questions, contexts)]
        expected = {
            "answer": _bytes([answer.text for answer in found]),
            "start": np.array([answer.start for answer in found], np.int32),
            "end": np.array([answer.end for answer in found], np.int32),
            "null_odds": np.array([answer.null_odds for answer in found], np.float32),
            "answerable": np.array([answer.answerable for answer in found]),
        }
        inputs = {"questions": _bytes(questions), "contexts": _bytes(contexts)}
        probes.append(Probe(inputs, expected, length=length))
    return probes


def preprocessor_probes(tokenizer: Tokenizer, seq_length: int) -> list[Probe]:
    """Sentences as fine-tuning would make them."""
    probes = []
    for length, texts in _batches():
        examples = [TextExample(str(i), text, None, None, "") for i, text in enumerate(texts)]
        columns, _ = classification_features.featurize(tokenizer, examples, seq_length)
        shape = [len(texts), seq_length]
        ids, mask = np.full(shape, tokenizer.pad_id, np.int32), np.zeros(shape, np.int32)
        for row, sequence in enumerate(columns["input_ids"]):
            ids[row, : len(sequence)], mask[row, : len(sequence)] = sequence, 1
        expected = {
            "input_word_ids": ids,
            "input_mask": mask,
            "input_type_ids": np.zeros(shape, np.int32),
        }
        probes.append(Probe({"sentences": _bytes(texts)}, expected, length=length))
    return probes
