# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that take texts answer in a graph as they do in Python."""

import contextlib
import random

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.export.probe_process import arrays
from albert_tf.export.saved_model import publish
from albert_tf.io import files
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.embedding.data import EmbeddingSpec
from albert_tf.tasks.embedding.task import EmbeddingTask
from albert_tf.tasks.export import task_export, text_form
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.tagging.data import TaggingSpec
from albert_tf.tasks.tagging.task import TaggingTask
from tests.support.builders import tiny_config
from tests.support.self_checks import checked_in_this_process
from tests.support.small_tasks import write_run

WORDS = ["stone", "_", "the", "___", "people", "(x)", "_ bread _"]
LABELS = ("no", "yes", "maybe")
SLOW_WORDPIECE = pytest.param("wordpiece", marks=pytest.mark.slow)


def make_task(task_class, spec, tokenizer):
    sizes = {"embedding_size": 16, "hidden_size": 32, "intermediate_size": 64}
    config = tiny_config(tokenizer.vocab_size, **sizes, initializer_range=0.2)
    return task_class(config, tokenizer, spec)


def compare(task, columns):
    """Compares all signatures with the Python code, and returns the outputs of the last one."""
    model = task.build_model()
    form, signatures = text_form(task, model), task_export(task, model).signatures
    for key, names in form.signatures().items():
        inputs = {name: tf.constant(columns[name]) for name in names}
        found = {name: value.numpy() for name, value in signatures[key](**inputs).items()}
        expected = form.expected(model, *(columns[name] for name in names))
        assert {*expected} <= {*found}
        for name, values in expected.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)
            else:  # NumPy's arrays of bytes drop NUL at the end, as in the self-check.
                np.testing.assert_array_equal(arrays(found)[name], values, err_msg=name)
    return found


@pytest.mark.parametrize("tokenizer", ["sentencepiece", SLOW_WORDPIECE], indirect=True)
@pytest.mark.parametrize(
    "labels", [("no", "yes", "maybe"), (), (0, 9, 10), (0.5, 1), (False, True)]
)
def test_classifiers(labels, tokenizer, odd_texts):
    task = make_task(TextClassificationTask, ClassificationSpec(labels, 14), tokenizer)
    seconds = random.Random(0).choices(["", *odd_texts[:50]], k=100)
    found = compare(task, {"sentences": odd_texts[:100], "second_sentences": seconds})
    assert {*found} == ({"label", "probabilities"} if labels else {"value"})
    if labels:
        assert found["probabilities"].std(axis=0).min() > 1e-3
        expected = np.array(labels)[found["probabilities"].argmax(axis=1)]
        found = found["label"].astype(str) if isinstance(labels[0], str) else found["label"]
        assert found.dtype.kind == expected.dtype.kind and found.dtype != np.int32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"labels": ("no", "yes", "maybe")},
        {"labels": ("no", "yes"), "multi_label": True, "window_pooling": "max"},
        {"labels": (), "mean": 3.0, "deviation": 2.0},
    ],
)
def test_classifiers_of_long_texts(settings, sentencepiece_tokenizer, odd_texts):
    spec = ClassificationSpec(max_seq_length=14, doc_stride=5, **settings)
    task, rng = make_task(TextClassificationTask, spec, sentencepiece_tokenizer), random.Random(0)
    texts = [" ".join(rng.choices(odd_texts, k=rng.randrange(1, 5))) for _ in range(80)]
    texts, seconds = [*texts[:40], "", "the"], [*texts[40:], "the people", ""]
    assert task.encode(text_form(task, None).examples(texts), labelled=False).texts.size > 60
    found = compare(task, {"sentences": texts, "second_sentences": seconds})
    (scores,) = (found[name] for name in ("probabilities", "value") if name in found)
    assert len(scores) == 42 and scores.std(axis=0).min() > 1e-3


@pytest.mark.usefixtures("self_check_here")
def test_labels_at_their_thresholds_are_no_fault(sentencepiece_tokenizer, tmp_path):
    spec = ClassificationSpec(tuple(range(1000)), 14, multi_label=True)
    task = make_task(TextClassificationTask, spec, sentencepiece_tokenizer)
    model = task.build_model()
    thresholds = task_export(task, model).probes[0].expected["probabilities"][0].tolist()
    task.thresholds = dict(zip(spec.names, thresholds))
    export = task_export(task, model)
    publish(export, str(tmp_path / "saved"), {})
    masked = [probe.expected["chosen"].mask.mean() for probe in export.probes]
    assert masked[0] == 1 and max(masked[1:]) < 0.5


def test_multiple_choice(sentencepiece_tokenizer, odd_texts):
    spec = MultipleChoiceSpec(max_seq_length=24, max_qa_length=12)
    task, rng = make_task(MultipleChoiceTask, spec, sentencepiece_tokenizer), random.Random(0)

    def text(least):
        return " ".join(rng.choices(WORDS, k=rng.randrange(least, 6)))

    options = [[text(1) for _ in range(3)] for _ in range(60)]
    texts = [f"{rng.choice(odd_texts)} the people" for _ in options]
    questions = [text(0) for _ in options]
    found = compare(task, {"texts": texts, "questions": questions, "options": options})
    best = found["probabilities"].argmax(axis=1)
    np.testing.assert_array_equal(found["index"], best)
    assert found["answer"].astype(str).tolist() == [row[i] for row, i in zip(options, best)]


@pytest.mark.parametrize(
    ("version", "best", "tokenizer"),
    [
        pytest.param("2.0", 10, "sentencepiece", marks=pytest.mark.smoke),
        ("1.1", 10, "wordpiece"),
        # With one start and one end, which are one piece, hardly any fit together.
        ("1.1", 1, "wordpiece"),
        pytest.param("1.1", 10, "sentencepiece", marks=pytest.mark.slow),
    ],
    indirect=["tokenizer"],
)
def test_answers(version, best, tokenizer, odd_texts):
    lengths = {"max_seq_length": 32, "doc_stride": 7, "max_query_length": 8}
    longest = 6 if best > 1 else 1
    spec = SquadSpec(version, n_best_size=best, max_answer_length=longest, **lengths)
    task, rng = make_task(SquadTask, spec, tokenizer), random.Random(0)
    # Without characters that SentencePiece drops inside of numbers.
    texts = [text.replace("\x01", "") for text in odd_texts[::2] if tokenizer.encode(text)]
    contexts = [" ".join(rng.choices(texts, k=rng.randrange(1, 5))) for _ in range(40)]
    questions = [f"{number} {rng.choice(texts)}" for number in range(len(contexts))]
    assert len({len(tokenizer.encode(context)) > 30 for context in contexts}) == 2
    contexts += ["", "the river, stone", "x"]
    found = compare(
        task, {"questions": [*questions, "the people", "the", ""], "contexts": contexts}
    )
    answers = [text.decode() for text in found["answer"]]
    assert answers == [x[i:j] for x, i, j in zip(contexts, found["start"], found["end"])]
    assert answers[-3] == "" and (best == 1 or (answers[-2] and answers[-1] == "x"))
    assert best > 1 or "" in answers[:-3]


@pytest.mark.parametrize(
    ("tags", "tokenizer"),
    [
        (("B-X", "B-Y", "I-X", "I-Y", "O"), "sentencepiece"),
        (("B-X", "E-X", "I-X", "O", "S-X"), "wordpiece"),
        (("NOUN", "O", "VERB"), "wordpiece"),
        (("O",), "wordpiece"),
    ],
    indirect=["tokenizer"],
)
def test_entities(tags, tokenizer, odd_texts):
    task, rng = make_task(TaggingTask, TaggingSpec(tags, 16), tokenizer), random.Random(0)
    texts = [" ".join(rng.choices(odd_texts, k=rng.randrange(1, 5))) for _ in range(60)]
    found = compare(task, {"texts": [*texts, "", "the people"]})
    spans = zip(texts, found["start"], found["end"], found["text"])
    for text, starts, ends, entities in spans:
        pieces = [text[i:j].encode() for i, j in zip(starts, ends)]
        assert pieces == [entity.rstrip(b"\0") for entity in entities.tolist()]
    assert found["label"][60].tolist() == [b""] * found["label"].shape[1]


@pytest.mark.parametrize(
    ("precision", "check"),
    [
        ("float32", "here"),
        pytest.param("float32", "in a fresh process", marks=pytest.mark.slow),
        pytest.param("mixed_bfloat16", "here", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("task_class", "spec"),
    [
        (TextClassificationTask, ClassificationSpec(LABELS, 14)),
        (TextClassificationTask, ClassificationSpec(LABELS, 14, doc_stride=5)),
        (MultipleChoiceTask, MultipleChoiceSpec(max_seq_length=24, max_qa_length=12)),
        (SquadTask, SquadSpec("2.0", max_seq_length=32, doc_stride=7, max_query_length=8)),
        (TaggingTask, TaggingSpec(("B-X", "I-X", "O"), 16)),
        (EmbeddingTask, EmbeddingSpec(16)),
    ],
)
def test_each_kind_is_checked_and_published(
    task_class, spec, precision, check, sentencepiece_tokenizer, tmp_path
):
    task = make_task(task_class, spec, sentencepiece_tokenizer)
    write_run(task, tmp_path / "run")
    path = str(tmp_path / "saved")
    with checked_in_this_process() if check == "here" else contextlib.nullcontext():
        albert_tf.export_model(str(tmp_path / "run"), path, precision=precision)
    report = files.read_object(f"{path}/self_check.json")
    least = 1e-6 if precision == "mixed_bfloat16" else 0
    assert least <= report["largest_difference"] < report["tolerance"]
    # Nobody trains them, so the weights of products are stored in the type that computes.
    stored = tf.train.load_checkpoint(f"{path}/variables/variables").get_variable_to_dtype_map()
    rounded = sum(dtype == tf.bfloat16 for dtype in stored.values())
    names = {*task.build_model().named_weights()} - {"answer_class/dense_1/kernel"}  # In float32.
    dense = sum(name.endswith("/kernel") for name in names)
    assert rounded == (dense if precision == "mixed_bfloat16" else 0) and dense > 5


def test_no_text_at_all_has_no_answer(sentencepiece_tokenizer):
    spec = ClassificationSpec(("no", "yes"), 14)
    task = make_task(TextClassificationTask, spec, sentencepiece_tokenizer)
    signatures = task_export(task, task.build_model()).signatures
    found = signatures["serving_default"](tf.constant([], tf.string))
    assert found["label"].shape == [0] and found["probabilities"].shape == [0, 2]
