# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError, DivergedError
from albert_tf.keras2 import keras
from albert_tf.tasks.classification.classifier import TextClassifier, TextRegressor
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.tables import TextColumns, TextExample
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import RunConfig
from tests.support.builders import tiny_config, write_tokenizer
from tests.support.forked import assert_refused_in_a_fork
from tests.support.small_tasks import PIECES, WORDS, write_run

CONFIG = tiny_config(len(PIECES), num_hidden_layers=2, max_position_embeddings=16)


@pytest.fixture
def run(tmp_path):
    """Writes the output directory of a model with these labels; returns its task and path."""

    def make(labels, pair=None):
        keras.utils.set_random_seed(7)
        tokenizer = write_tokenizer(tmp_path, WORDS)
        spec = ClassificationSpec(labels, 12, TextColumns("text", pair, "label"))
        task = TextClassificationTask(CONFIG, tokenizer, spec)
        write_run(task, tmp_path / "run")
        return task, str(tmp_path / "run")

    return make


def some_texts(n):
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(1, 15))) for _ in range(n)]


def estimated(task, folder, texts, tmp_path):
    """Predicts texts or pairs with the Estimator, from records."""
    examples = [TextExample("", *text, None, "") for text in texts]
    source = task.open_examples(examples, "x", labelled=False).source
    return Estimator(task, RunConfig(folder)).predict(source.eval_input_fn)


def test_a_classifier_in_a_forked_process_is_one_sentence(run):
    task, folder = run(("no", "yes"))
    classifier = TextClassifier.load(folder)
    evaluator = Estimator(task, RunConfig(folder))
    assert_refused_in_a_fork(
        lambda: classifier.predict(["w1"]),
        lambda: evaluator._predictor(iter([])),
        lambda: Estimator(task, RunConfig(folder)),
    )


@pytest.mark.parametrize("pair", [None, "pair"])
def test_texts_and_pairs_are_classified_as_run_classifier_does(pair, run, tmp_path):
    task, folder = run(("no", "yes", "maybe"), pair)
    texts = some_texts(70)  # More than one batch, some longer than the model takes.
    seconds = [*texts[35:], *texts[:34], ""] if pair else [None] * 70
    expected = estimated(task, folder, zip(texts, seconds), tmp_path)["probabilities"]
    best = [task.spec.labels[i] for i in expected.argmax(axis=1)]
    assert len(set(best)) > 1
    classifier = TextClassifier.load(folder)
    given = [texts, seconds] if pair else [texts]
    with pytest.warns(UserWarning, match=r"^Of 70 examples, [1-9]\d* sequences are cut"):
        probabilities = classifier.probabilities(*given, batch_size=32)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    classified = classifier.predict(*given)
    assert [c.label for c in classified] == best
    assert [c.probability for c in classified] == pytest.approx(probabilities.max(axis=1).tolist())


def test_a_regression_model_gives_numbers_and_no_labels(run, tmp_path):
    task, folder = run(())
    texts = some_texts(5)
    expected = estimated(task, folder, [(text, None) for text in texts], tmp_path)["value"]
    regressor = TextRegressor.load(folder)
    found = regressor.predict(texts)
    assert regressor.predict([]).shape == (0,)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32
    assert expected.std() > 1e-3
    with pytest.raises(AlbertError, match="run predicts numbers; open it with TextRegressor"):
        TextClassifier.load(folder)
    with pytest.raises(AlbertError, match="path of the model's output directory must be a string"):
        TextClassifier.load(None)


SINGLE = [
    (("w1 w2",), "The texts must be a list of strings, not 'w1 w2'"),
    ((None,), "The texts must be a list of strings, not None"),
    (([None],), r"Number 0 \(counted from 0\) of the texts must be a string, not None"),
    ((["w1", 3.5],), "Number 1 .* must be a string, not 3.5"),
    ((["w1"], ["w2"]), "trained on single texts; leave out the second texts"),
]
PAIRS = [
    ((["w1"], "w2"), "The second texts must be a list of strings, not 'w2'"),
    ((["w1"], [None]), "Number 0 .* of the second texts must be a string, not None"),
    ((["w1"], ["w2", "w3"]), "1 texts, but 2 second texts"),
    ((["w1"],), "trained on pairs of texts; give the second texts"),
]


@pytest.mark.parametrize(("pair", "cases"), [(None, SINGLE), ("pair", PAIRS)])
def test_arguments_that_cannot_be_classified_are_refused(pair, cases, run):
    classifier = TextClassifier.load(run(("no", "yes"), pair)[1])
    assert classifier.predict([]) == [] and classifier.predict([], []) == []
    assert classifier.probabilities(()).shape == (0, 2)
    for arguments, message in cases:
        with pytest.raises(AlbertError, match=message):
            classifier.predict(*arguments)
    with pytest.raises(AlbertError, match="run predicts labels; open it with TextClassifier"):
        TextRegressor.load(classifier.folder)


def test_a_model_that_answers_with_nan_is_refused(run):
    classifier = TextClassifier.load(run(("no", "yes"))[1])
    classifier.model.trainable_variables[-1].assign([np.nan, 0.0])
    with pytest.raises(DivergedError, match="The model gives NaN for 2 of 2 examples"):
        classifier.predict(["w1", "w2"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "text"}, "train row 0: there is no column 'text'; .* by; name one by `text`"),
        ({"output_dir": None}, "`output_dir` is needed"),
        (
            {"trainsteps": 3, "epochs": 2, "lr": 1e-4, "zzz": 1, "class_weight": "a"},
            "class_weight .did you mean class_weights.., epochs .did you mean num_train_epochs.., "
            "lr .did you mean learning_rate.., trainsteps .did you mean train_step.., zzz[.]",
        ),
        ({"text": True}, "there is no column 'True'"),
        ({"train": []}, "The train data holds no examples"),
        ({"eval": [{"sentence": "w1", "by": None}]}, "eval row 0: the label is missing"),
        ({"eval": [{"sentence": "w1", "by": "c"}]}, "eval row 0: the label 'c' does not occur in"),
        (
            {"train": [{"text": x, "by": x} for x in "ab"], "text": "text", "eval": [{"x": 1}]},
            r"eval row 0: there is no column 'text'; there are x\.$",
        ),
        ({"train": {0: ["w1"], 1: ["a"]}, "text": 0, "label": 1}, "examples .1. all have .* 'a'"),
        ({"init_checkpoint": "x"}, "`init_checkpoint` is the first argument of `train`"),
        ({"label": "sentence"}, "are in the columns sentence, sentence; name different ones"),
        ({"model": None}, "The path of the pretrained model must be a string, not None"),
    ],
)
def test_wrong_data_and_settings_are_named(arguments, message, tmp_path):
    rows = [{"sentence": "w1", "by": "a"}, {"sentence": "w2", "by": "b"}]
    given = {"model": "albert_tiny_books", "train": rows, "text": "sentence", "label": "by"}
    with pytest.raises(AlbertError, match=message):
        TextClassifier.train(**{**given, "output_dir": tmp_path, **arguments})


@pytest.mark.usefixtures("self_check_here")
def test_evaluation_and_export_are_of_the_object_not_of_its_folder(run, tmp_path):
    classifier = TextClassifier.load(run(("no", "yes"), "pair")[1], max_seq_length=6)
    bias = classifier.model.named_weights()["output_bias"]
    pairs = some_texts(9), some_texts(18)[9:]
    for label, values in (("no", [50.0, 0.0]), ("yes", [0.0, 50.0])):
        bias.assign(values)
        rows = {"text": pairs[0], "pair": pairs[1], "label": [label] * 9}
        assert classifier.evaluate(rows)["accuracy"] == 1.0
    bias.assign([0.5, 0.0])
    classifier.export(tmp_path / "exported")
    assert '"max_seq_length": 6' in (tmp_path / "exported/README.md").read_text()
    classify = tf.saved_model.load(str(tmp_path / "exported"))
    expected = classifier.probabilities(*pairs)
    np.testing.assert_allclose(classify(*pairs)["probabilities"], expected, atol=1e-5)
    signature = classify.signatures["serving_default"].structured_input_signature[1]
    assert {*signature} == {"sentences", "second_sentences"}
    with pytest.raises(ValueError, match="Could not find matching concrete function"):
        classify(pairs[0])
