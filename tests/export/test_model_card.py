# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The card has all facts in the files beside the weights, and none about the machine."""

import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.export import hub, id_formats
from albert_tf.export.model_card import Kind, ModelFacts, model_card
from albert_tf.tasks.classification import export as classifier
from albert_tf.tasks.multiple_choice import export as multiple_choice
from albert_tf.tasks.squad import export as squad

CHECK = "It was checked."
FACTS = ModelFacts(
    "movies",
    AlbertConfig.from_preset("albert_base_v2"),
    parameters=1234567,
    origin="The weights are those of `ckpt-400`.",
    task={"labels": ["bad", "good|great"], "columns": {"text": "sentence", "id": None}},
    training={"learning_rate": 3e-5, "init_checkpoint": "/home/someone/runs/base"},
    data={
        "examples": 67349,
        "options": {"input_files": [{"name": "train.tsv", "bytes": 10}]},
        "statistics": {"mean_length": 13.25},
    },
    evaluation={"accuracy": 0.8254, "majority_accuracy": 0.509},
)


@pytest.fixture
def signatures():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "sentences")])
    def answer(sentences):
        return {"label": sentences, "probabilities": tf.zeros([tf.size(sentences), 2])}

    return {"serving_default": answer.get_concrete_function()}


def rows(card):
    """The tables' rows that have two cells."""
    lines = [line[2:-2].split(" | ") for line in card.splitlines() if line.startswith("| ")]
    return dict(line for line in lines if len(line) == 2)


def test_all_facts_are_in_the_card(signatures):
    card = model_card(classifier.KIND, signatures, FACTS, CHECK)
    found = rows(card)
    assert found["parameters"] == "1,234,567" and found["hidden_size"] == "768"
    assert found["labels"] == r"bad, good\|great" and found["columns: text"] == "sentence"
    assert "columns: id" not in found
    assert found["learning_rate"] == "3e-05" and found["examples"] == "67349"
    assert found["options: input_files"] == "train.tsv 10"
    assert found["statistics: mean_length"] == "13.25" and found["accuracy"] == "0.8254"
    assert "`sentences` string [?]" in card and "`probabilities` float32 [?, 2]" in card
    assert CHECK in card
    assert 'tf.saved_model.load("movies")' in card and "ckpt-400" in card


def test_paths_lose_their_folders(signatures):
    card = model_card(classifier.KIND, signatures, FACTS, CHECK)
    assert rows(card)["init_checkpoint"] == "base" and "/home" not in card


def test_unknown_facts_are_left_out(signatures):
    card = model_card(hub.ENCODER, signatures, ModelFacts("x", origin="Some weights."), CHECK)
    assert "How they were trained is not recorded" in card
    assert "## Task" not in card and "## Evaluation" not in card and "parameters" not in card
    assert "## Signatures" in card
    assert "Signatures" not in model_card(hub.ENCODER, {}, ModelFacts("x"), CHECK)


KINDS = [
    *(hub.ENCODER, hub.PREPROCESSOR, classifier.KIND, multiple_choice.KIND, squad.KIND),
    Kind("TensorFlow Lite", id_formats.lite_format("none").example),
    Kind("ONNX", id_formats._ONNX_EXAMPLE),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_the_example_of_use_is_python(kind, signatures):
    card = model_card(kind, signatures, ModelFacts("x"), CHECK)
    compile(card.split("```python\n")[1].split("```")[0], "card", "exec")
