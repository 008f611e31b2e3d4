# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What exports that read text are probed with, answered by the host's tokenizer and the model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.pipeline import RecordSource
from albert_tf.data.text_tables import TextExample
from albert_tf.export.self_check import Probe
from albert_tf.keras2 import keras
from albert_tf.tasks import classification_features
from albert_tf.tasks.finetuning import ExampleTask
from albert_tf.tasks.multiple_choice import features as multiple_choice_features
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.tasks.squad.answering import QuestionAnswerer
from albert_tf.tasks.text_classification import TextClassificationTask
from albert_tf.tokenization import Tokenizer
from albert_tf.training.specs import InputContext

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
        yield f"{_LONG} sentences", [" ".join([text] * _LONG) for text in _SENTENCES[:size]]


def _bytes(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts])


def _answers(
    task: ExampleTask,
    model: keras.Model,
    build_records: Callable[[str], str],
    features: dict,
    size: int,
) -> dict[str, np.ndarray]:
    """What the task predicts of a few examples, read from records as the runners do."""
    with tempfile.TemporaryDirectory() as folder:
        lengths = (task.spec.max_seq_length,)
        source = RecordSource([build_records(folder)], features, 0, lengths=lengths)
        batch = next(iter(source.eval_input_fn(InputContext(size))))
    order = tf.argsort(batch["example_index"])
    outputs = task.predict(model, batch)
    return {name: tf.gather(value, order).numpy() for name, value in outputs.items()}


def classifier_probes(task: TextClassificationTask, model: keras.Model) -> list[Probe]:
    """Single texts, and pairs."""
    labels, probes = task.spec.labels, []
    features = classification_features.record_features(labels)
    for length, texts in _batches():
        for seconds in ([None] * len(texts), list(_SENTENCES[: len(texts)])):
            examples = [
                TextExample(str(i), a, b, None, "") for i, (a, b) in enumerate(zip(texts, seconds))
            ]

            def build(folder: str, examples: list[TextExample] = examples) -> str:
                return classification_features.build_records(
                    folder,
                    examples,
                    task.tokenizer,
                    task.spec.max_seq_length,
                    labels,
                    labelled=False,
                )

            found = _answers(task, model, build, features, len(texts))
            expected = {"value": found["values"]} if not labels else found
            if labels:
                best = [labels[i] for i in found["probabilities"].argmax(axis=-1)]
                expected = {"label": _bytes(best), "probabilities": found["probabilities"]}
            inputs = {"sentences": _bytes(texts)}
            if seconds[0]:
                inputs["second_sentences"] = _bytes(seconds)
            probes.append(Probe(inputs, expected, length=length))
    return probes


def multiple_choice_probes(task: MultipleChoiceTask, model: keras.Model) -> list[Probe]:
    """Questions with as many options as the model was trained on."""
    choices, probes = task.spec.num_choices, []
    options = tuple(_OPTIONS[i % len(_OPTIONS)] for i in range(choices))
    for length, texts in _batches():
        examples = [
            MultipleChoiceExample(str(i), text, question, options, 0, "", "")
            for i, (text, question) in enumerate(zip(texts, _QUESTIONS))
        ]

        def build(folder: str, examples: list[MultipleChoiceExample] = examples) -> str:
            return multiple_choice_features.build_records(
                folder, examples, task.tokenizer, task.spec
            )

        features = multiple_choice_features.record_features(choices)
        found = _answers(task, model, build, features, len(texts))["probabilities"]
        inputs = {
            "texts": _bytes(texts),
            "questions": _bytes(_QUESTIONS[: len(texts)]),
            "options": np.stack([_bytes(options)] * len(texts)),
        }
        probes.append(Probe(inputs, {"probabilities": found}, length=length))
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
