# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import copy
import dataclasses
import pickle
import random

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextColumns, TextExample
from albert_tf.keras2 import keras
from albert_tf.tasks.classification.classifying import TextClassifier
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import RunConfig
from tests.support.builders import tiny_config, write_tokenizer
from tests.support.small_tasks import PIECES, WORDS, write_run

CONFIG = tiny_config(len(PIECES), num_hidden_layers=2, max_position_embeddings=16)


@pytest.fixture
def run(tmp_path):
    """Writes the output directory of a model with these labels; returns its task and path."""

    def make(labels):
        keras.utils.set_random_seed(7)
        tokenizer = write_tokenizer(tmp_path, WORDS)
        task = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(labels, 12))
        write_run(task, tmp_path / "run")
        return task, str(tmp_path / "run")

    return make


def some_texts(n):
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(1, 15))) for _ in range(n)]


def estimated(task, folder, texts, tmp_path):
    """Predicts texts or pairs with the Estimator, from records."""
    examples = [TextExample("", *text, None, "") for text in texts]
    source = task.open_examples(examples, "x", str(tmp_path / "cache"), labelled=False).source
    return Estimator(task, RunConfig(folder)).predict(source.eval_input_fn)


def test_texts_and_pairs_are_classified_as_run_classifier_does(run, tmp_path):
    task, folder = run(("no", "yes", "maybe"))
    texts = some_texts(70)  # More than one batch, some longer than the model takes.
    seconds = [*texts[35:], *texts[:34], ""]
    both = [*((text, None) for text in texts), *zip(texts, seconds)]
    expected = estimated(task, folder, both, tmp_path)["probabilities"]
    best = [task.spec.labels[i] for i in expected.argmax(axis=1)]
    assert len(set(best)) > 1
    classifier = TextClassifier.load(folder)
    for arguments, rows in (([texts], slice(0, 70)), ([texts, seconds], slice(70, 140))):
        probabilities = classifier.probabilities(*arguments)
        np.testing.assert_allclose(probabilities, expected[rows], atol=1e-5)
        classified = classifier.classify(*arguments)
        assert [c.label for c in classified] == best[rows]
        assert [c.probability for c in classified] == pytest.approx(
            probabilities.max(axis=1).tolist()
        )


def test_a_regression_model_gives_values_and_no_labels(run, tmp_path):
    task, folder = run(())
    texts = some_texts(5)
    expected = estimated(task, folder, [(text, None) for text in texts], tmp_path)["values"]
    classifier = TextClassifier.load(folder)
    np.testing.assert_allclose(classifier.values(texts), expected, atol=1e-5)
    assert expected.std() > 1e-3
    with pytest.raises(AlbertError, match="predicts numbers, not labels"):
        classifier.classify(texts)


def test_arguments_that_cannot_be_classified_are_refused(run):
    classifier = TextClassifier.load(run(("no", "yes"))[1])
    for arguments, message in (
        (("w1 w2",), "The texts must be a list of strings, not 'w1 w2'"),
        ((["w1"], "w2"), "The second texts must be a list of strings, not 'w2'"),
        ((None,), "The texts must be a list of strings, not None"),
        (((text for text in ["w1"]),), "must be a list of strings, not <generator"),
        (({"w1"},), "must be a list of strings"),
        (({"w1": "w2"},), "must be a list of strings"),
        (([None],), r"Number 0 \(counted from 0\) of the texts must be a string, not None"),
        ((["w1", 3.5],), "Number 1 .* must be a string, not 3.5"),
        (([b"w1"],), "not b'w1'; decode it first"),
        ((["w1"], [None]), "Number 0 .* of the second texts must be a string, not None"),
        ((["w1"], ["w2", "w3"]), "1 texts, but 2 second texts"),
        (([],), "There is no text"),
    ):
        with pytest.raises(AlbertError, match=message):
            classifier.classify(*arguments)
    with pytest.raises(AlbertError, match="predicts labels, not numbers"):
        classifier.values(["w1"])


@pytest.mark.parametrize(
    ("changes", "takes_pairs"),
    [
        ({"columns": TextColumns("text", label="label")}, False),
        ({"columns": TextColumns("a", "b", "label")}, True),
        ({"task_name": "cola"}, False),
        pytest.param({"task_name": "mrpc"}, True, marks=pytest.mark.slow),
        ({}, True),
    ],
)
def test_second_texts_are_refused_where_the_model_was_trained_on_single_texts(
    changes, takes_pairs, run
):
    task, folder = run(("no", "yes"))
    task.spec = dataclasses.replace(task.spec, **changes)
    task.save_files(folder)
    classifier = TextClassifier.load(folder)
    if takes_pairs:
        assert len(classifier.classify(["w1"], ["w2"])) == 1
    else:
        with pytest.raises(AlbertError, match="trained on single texts; leave the second texts"):
            classifier.classify(["w1"], ["w2"])


@pytest.mark.parametrize(
    "copied",
    [
        pytest.param(copy.deepcopy, marks=pytest.mark.slow),
        lambda x: pickle.loads(pickle.dumps(x)),
    ],
)
def test_a_copy_gives_the_same_answers(copied, run):
    classifier = TextClassifier.load(run(("no", "yes"))[1])
    assert copied(classifier).classify(["w1 w2"]) == classifier.classify(["w1 w2"])


@pytest.mark.parametrize("folder", [None, 3, ""])
def test_a_folder_that_is_not_a_path_is_refused(folder):
    with pytest.raises(AlbertError, match="path of the model's output directory must be a string"):
        TextClassifier.load(folder)


def test_a_folder_without_a_classifier_is_refused(tmp_path):
    with pytest.raises(AlbertError):
        TextClassifier.load(str(tmp_path))
