# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports the model of an output directory as a SavedModel, for TensorFlow Lite, or as ONNX."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.export.hub import encoder_export, preprocessor_export
from albert_tf.export.id_formats import ONNX, TFLITE, encoder_ids_export, ids_export
from albert_tf.export.model_folder import ModelFolder
from albert_tf.export.saved_model import INT8, Export, publish
from albert_tf.export.text_form import TextForm, text_export
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.fine_tuning_task import TASKS, FineTuningTask
from albert_tf.training.specs import BFLOAT16, FLOAT32
from albert_tf.weights.load import POOLER, SENTENCE_ORDER, load_weights
from albert_tf.weights.run_folder import TASK_FILE, find_beside, find_task

#: Packages of the library's tasks; other tasks are found once their module has been imported.
_BUILT_IN = ("classification", "embedding", "multiple_choice", "squad", "tagging")
SAVED_MODEL = "saved_model"
#: What can be exported other than the model of a task.
ENCODER_TYPE, PRETRAINED_TYPE, PREPROCESSOR_TYPE = "model", "model_with_mlm", "preprocessing"
_FORMATS = {SAVED_MODEL: (FLOAT32, BFLOAT16), TFLITE: (FLOAT32, INT8), ONNX: (FLOAT32, INT8)}
#: The formats of each type, with their precisions. Formats without texts need a model of ids.
_TYPES = {
    None: _FORMATS,
    ENCODER_TYPE: _FORMATS,
    PRETRAINED_TYPE: {SAVED_MODEL: (FLOAT32, BFLOAT16)},
    PREPROCESSOR_TYPE: {SAVED_MODEL: (FLOAT32,)},
}


def export_model(
    directory: str,
    path: str,
    overwrite: bool = False,
    precision: str = FLOAT32,
    export_type: str | None = None,
    file_format: str = SAVED_MODEL,
    seq_length: int = 128,
    lower_case: bool | None = None,
) -> None:
    """Exports a model as a SavedModel, for TensorFlow Lite, or as ONNX; see docs/export.md.

    Args:
      directory: the output directory of a run, or any model that load_pretrained takes.
      path: the folder to create; for TensorFlow Serving a number, as in "models/rte/1".
      overwrite: replace an earlier export at `path`; see folders.new_folder.
      precision: "float32"; of a SavedModel also "mixed_bfloat16" for processors with units for it:
        faster, and less exact; for "tflite" and "onnx" also "int8".
      export_type: "model" (the encoder), "model_with_mlm" (with the pretraining heads) or
        "preprocessing" (tokenizer and packing). None: the model of the run's task, which as a
        SavedModel takes text. Without a task, a SavedModel has the pretraining heads, if the model
        has a sentence order head; other formats have the encoder.
      file_format: "saved_model"; "tflite" or "onnx" for encoders, classifiers, taggers,
        embedders, and answerers without a beam, which then take token ids.
      seq_length: default length of a preprocessor's outputs, in tokens.
      lower_case: of a model without a task, see Tokenizer.from_file.

    Raises:
      AlbertError: there is no model, it has no vocabulary, the folder exists, an argument is not a
        path, the model has no such type, format or precision, or its export differs from it.

    Example:
      albert_tf.export_model("runs/rte", "exports/rte")
    """
    directory = files.path_of(directory, "model")
    path = files.path_of(path, "folder to make")
    if export_type not in _TYPES:
        raise AlbertError(
            f"`export_type`={short_repr(export_type)} must be {', '.join([*_TYPES][1:])} or None."
        )
    formats = _TYPES[export_type]
    if precision not in formats.get(file_format, ()):
        possible = "; ".join(f"{name}: {', '.join(values)}" for name, values in formats.items())
        type_ = f" with `export_type`={export_type}" if export_type else ""
        raise AlbertError(
            f"`format`={short_repr(file_format)} and `precision`={short_repr(precision)} cannot be "
            f"combined{type_}; choose from {possible}."
        )
    folder = ModelFolder(directory)
    task, model = None if export_type else _load_task(folder, lower_case), None
    if task:
        tokenizer, build = task.tokenizer, task.build_model
    else:
        config, tokenizer = folder.config_and_tokenizer(lower_case)
        with_heads = export_type != ENCODER_TYPE and file_format == SAVED_MODEL
        if with_heads and not export_type:
            stored = {*folder.source.shapes}
            with_heads = not stored >= POOLER or bool(stored & SENTENCE_ORDER)
            if not with_heads:
                log.info("The model has no sentence order head; its encoder is exported alone.")
        build = functools.partial(AlbertPretrainer if with_heads else AlbertEncoder, config)
    if export_type == PREPROCESSOR_TYPE:
        export = preprocessor_export(tokenizer, seq_length)
    else:
        model = build(FLOAT32)
        log.info(load_weights(folder.source, model.named_weights(), whole=True))
        if task:
            export = task_export(task, model, precision, file_format)
        elif file_format == SAVED_MODEL:
            rounded = _rounded(model, build, precision)
            export = encoder_export(rounded, tokenizer, model, precision)
        else:
            export = encoder_ids_export(model, tokenizer, file_format, precision)
    publish(export, path, folder.sections(tokenizer, model), overwrite, folder.path)


def _load_task(folder: ModelFolder, lower_case: bool | None) -> FineTuningTask | None:
    """Loads the task of a model, whose files may lie above a checkpoint; None without one."""
    if not (values := find_task(folder.path)):
        return None
    name = values.get("task")
    for package in _BUILT_IN:
        importlib.import_module(f"albert_tf.tasks.{package}.task")
    if name not in TASKS:
        raise AlbertError(
            f"{folder.given} is a model for an unknown task, {short_repr(name)}; import the module "
            "that defines it first."
        )
    if lower_case is not None:
        raise AlbertError(
            "`do_lower_case` would be ignored: a fine-tuned model keeps its tokenizer."
        )
    task_file = find_beside(folder.path, TASK_FILE)
    task = TASKS[name].load(os.path.dirname(task_file) if task_file else folder.path)
    if folder.is_one_of_several:
        task.thresholds = None  # They are of other weights.
    return task


def publish_task(
    task: FineTuningTask, model: AlbertModel, folder: str, path: str, overwrite: bool
) -> None:
    """Exports a model in memory, whose run is in `folder`; for the rest see `export_model`."""
    path, run = files.path_of(path, "folder to make"), ModelFolder(folder)
    sections = run.sections(task.tokenizer, model)
    sections["Task"] = {"task": task.name, **task.task_file()}
    publish(task_export(task, model), path, sections, overwrite, run.path)


def text_form(task: FineTuningTask, model: AlbertModel) -> TextForm:
    """Returns what the SavedModel that takes texts does with a model, in any precision.

    Raises:
      AlbertError: the task has no such SavedModel.
    """
    if not task.form:
        raise AlbertError(
            f"There is no SavedModel for the task {task.name!r}; export the model's encoder."
        )
    module, _, name = task.form.rpartition(".")
    return getattr(importlib.import_module(module), name)(task, model)


def task_export(
    task: FineTuningTask,
    model: AlbertModel,
    precision: str = FLOAT32,
    file_format: str = SAVED_MODEL,
) -> Export:
    """Returns the export of a task with a float32 model, to be published.

    A SavedModel in bfloat16 keeps the kernels of dense layers in that type: it only answers.

    Raises:
      AlbertError: the task has no such export.
    """
    if file_format == SAVED_MODEL:
        with graph_mode(GraphMode.SERVED):
            served = _rounded(model, task.build_model, precision)
        return text_export(text_form(task, served), model, precision)
    form = text_form(task, model)
    if not form.takes_ids:
        raise AlbertError(
            f"The model of the task {task.name!r} cannot be exported for token ids; export the "
            f"encoder, or a SavedModel that takes texts."
        )
    return ids_export(
        form.title, form.of_ids, model, task.tokenizer, form.labels, file_format, precision
    )


def _rounded(
    model: AlbertModel, build: Callable[[str], AlbertModel], precision: str
) -> AlbertModel:
    """Returns a float32 model in a precision, given what builds such models."""
    if precision == FLOAT32:
        return model
    rounded, weights = build(precision), model.named_weights()
    for name, variable in rounded.named_weights().items():
        variable.assign(tf.cast(weights[name], variable.dtype))
    return rounded
