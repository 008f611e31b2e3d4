# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""ALBERT for TensorFlow 2 / Keras.

Public names are loaded on first use, so that ``import albert_tf`` does not import TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import Any

from albert_tf.io.tensorflow_import import import_quietly

__version__ = "0.1.0"

_HOME = {
    "AlbertConfig": "albert_tf.config",
    "AlbertEncoder": "albert_tf.modeling.encoder",
    "AlbertError": "albert_tf.errors",
    "AlbertPretrainer": "albert_tf.modeling.pretrainer",
    "Estimator": "albert_tf.training.estimator",
    "EvalSpec": "albert_tf.training.specs",
    "FineTuneConfig": "albert_tf.tasks.fine_tune_config",
    "MultipleChoice": "albert_tf.tasks.multiple_choice.chooser",
    "PretrainedModel": "albert_tf.weights.pretrained_model",
    "QuestionAnswerer": "albert_tf.tasks.squad.answerer",
    "RunConfig": "albert_tf.training.specs",
    "TextClassifier": "albert_tf.tasks.classification.classifier",
    "TextEmbedder": "albert_tf.tasks.embedding.embedder",
    "TextRegressor": "albert_tf.tasks.classification.classifier",
    "TextTagger": "albert_tf.tasks.tagging.tagger",
    "Tokenizer": "albert_tf.tokenization.tokenizer",
    "TrainSpec": "albert_tf.training.specs",
    "export_model": "albert_tf.tasks.export",
    "keras": "albert_tf.keras2",
    "load_pretrained": "albert_tf.weights.pretrained_model",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        import_quietly()
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
