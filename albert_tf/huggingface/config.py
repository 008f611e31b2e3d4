# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes config.json, also of models with the head of a task, without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from albert_tf.config import LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.huggingface import CONFIG, MODULES
from albert_tf.huggingface.sentence_transformers import EMBEDDING, read_modules
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.io.text_tables import label_text
from albert_tf.settings import field_names

#: Keys with the same name and meaning in albert_config.json.
_SAME_KEYS = sorted({*field_names(AlbertConfig)} - {"hidden_act", "parameter_sharing"})
#: Values that other models of Hugging Face may have differently.
_REQUIRED = {
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
}
#: Hugging Face's "gelu" is the exact function, not the approximation of the TF1 release.
_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}

#: The key for settings that only albert_tf has; transformers keeps what it does not know.
_OURS = "albert_tf"
_SINGLE_LABEL, _REGRESSION = "single_label_classification", "regression"
_MULTI_LABEL = "multi_label_classification"


class Head(NamedTuple):
    """A task's model of Hugging Face's.

    Attributes:
      architecture: its class.
      outputs: the setting in task.json with the names of the head's outputs, if they have some.
      has_pooler: whether the model has a pooler.
      settings: in task.json, of models that others have trained.
    """

    architecture: str
    outputs: str = ""
    has_pooler: bool = True
    settings: Mapping[str, Any] = {}


#: By the name of the task in task.json.
HEADS = {
    "text_classification": Head("AlbertForSequenceClassification", "labels"),
    "multiple_choice": Head("AlbertForMultipleChoice"),
    "squad": Head(
        "AlbertForQuestionAnswering",
        has_pooler=False,
        settings={"version": "1.1", "max_seq_length": 384},
    ),
    "tagging": Head("AlbertForTokenClassification", "tags", has_pooler=False),
    EMBEDDING: Head("AlbertModel"),
}


def read_config(path: str) -> AlbertConfig:
    """Reads Hugging Face's config.json.

    Raises:
      AlbertError: it is missing or lacks a key (where Hugging Face uses xxlarge's value), or
        describes a model that is not an ALBERT or not supported.
    """
    values = files.read_object(path, "model configuration")
    if values.get("model_type") != "albert":
        model_type = short_repr(values.get("model_type"))
        raise AlbertError(f"{path} is not of an ALBERT: its model_type is {model_type}.")
    for key, value in _REQUIRED.items():
        if values.get(key, value) != value:
            raise AlbertError(f"{path}: {key} must be {value!r}, not {short_repr(values[key])}.")
    activation = values.get("hidden_act", "gelu_new")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise AlbertError(
            f"{path}: hidden_act must be one of {', '.join(_ACTIVATIONS)}, not "
            f"{short_repr(activation)}."
        )
    ours = {key: values[key] for key in _SAME_KEYS if key in values}
    config = AlbertConfig.from_dict({**ours, "hidden_act": _ACTIVATIONS[activation]}, source=path)
    _check(config)
    return config


def config_values(config: AlbertConfig) -> dict[str, Any]:
    """Returns the content of config.json, without the class and the ids of special pieces.

    The parameter_sharing is "all"; see AlbertConfig.shared_by_groups.

    Raises:
      AlbertError: Hugging Face's code has no such model.
    """
    _check(config)
    values = config.to_dict()
    activations = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    return {
        **{key: values[key] for key in _SAME_KEYS},
        "classifier_dropout_prob": 0.1,  # As in the TF1 release's classifier.
        "hidden_act": activations[config.hidden_act],
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "model_type": "albert",
        "tie_word_embeddings": True,
    }


def read_task(folder: str) -> dict[str, Any]:
    """Returns what task.json has of a model with the head of a task; {} of one without.

    Of a head for several numbers, the "task" is Hugging Face's problem_type.

    Raises:
      AlbertError: two outputs have the same name, or one has none.
    """
    values = files.read_object(path := os.path.join(folder, CONFIG), "model configuration")
    kind = values.get("architectures")
    task = next((name for name, head in HEADS.items() if [head.architecture] == kind), None)
    modules = read_modules(folder) if files.exists(os.path.join(folder, MODULES)) else {}
    if task is None or (task == EMBEDDING) != bool(modules):
        return {}
    head = HEADS[task]
    found = {"max_seq_length": 512, **head.settings, **modules}
    longest = read_config(path).max_position_embeddings
    found["max_seq_length"] = min(found["max_seq_length"], longest)
    if (ours := values.get(_OURS) or {}).get("task") == task:
        found |= ours
    if head.outputs:
        named = values.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        found[head.outputs] = names = [named.get(str(i)) for i in range(len(named))]
        if len({*names} - {None}) < len(names):
            raise AlbertError(f"{path}: id2label must have a different name for each 0, 1, ….")
        problem = values.get("problem_type")
        if len(names) == 1 and problem in (None, _REGRESSION):
            found[head.outputs] = []
        elif problem == _MULTI_LABEL:
            found["multi_label"] = True
        elif problem not in (None, _SINGLE_LABEL):
            task = problem
    return {**found, "task": task}


def head_values(task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what config.json has of a model with this task.json.

    Raises:
      AlbertError: Hugging Face's code has no such head.
    """
    head, version = HEADS.get(task["task"]), task.get("version", "")
    if head is None or (version == "2.0" and not task.get("plain_head")):
        raise AlbertError(
            f"Hugging Face's code has no head like that of {task['task']} {version}: convert the "
            "encoder alone with `allow_partial`, or train with a head that it has, which for SQuAD "
            "is that of `version`=1.1, also for 2.0 with `plain_head`."
        )
    values = {"architectures": [head.architecture], _OURS: dict(task)}
    if head.outputs:
        names = [*map(label_text, task[head.outputs])] or ["LABEL_0"]
        values["id2label"] = {str(i): label for i, label in enumerate(names)}
        values["label2id"] = {label: i for i, label in enumerate(names)}
        of_labels = _MULTI_LABEL if task.get("multi_label") else _SINGLE_LABEL
        values["problem_type"] = of_labels if task[head.outputs] else _REGRESSION
    return values


def _check(config: AlbertConfig) -> None:
    """Raises AlbertError for a model that Hugging Face's code does not have."""
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    # Hugging Face divides where the TF1 release multiplies, which rounds differently.
    if any(int(i / (layers / groups)) != config.group(i, "attention") for i in range(layers)):
        raise AlbertError(
            f"With {layers} layers in {groups} groups, Hugging Face's layers are of other groups "
            "than the TF1 release's, so the model cannot be converted."
        )
