# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports the model of an output directory as a SavedModel, for TensorFlow Lite, or as ONNX."""

from __future__ import annotations

import os

from albert_tf.errors import AlbertError
from albert_tf.export.hub import ENCODER, export_encoder
from albert_tf.export.id_formats import IdFormat, check, encoder_outputs, summary
from albert_tf.export.model_card import CARD_FILE, Kind, model_card
from albert_tf.export.model_folder import ModelFolder
from albert_tf.export.saved_model import (
    PRECISIONS,
    Export,
    export_in,
    input_specs,
    serving_signature,
)
from albert_tf.export.self_check import REPORT_FILE
from albert_tf.io import files, folders
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.registry import find_task
from albert_tf.training.specs import FLOAT32
from albert_tf.weights.run_folder import TASK_FILE, find_beside


def export_task(
    task_class: type[FineTuningTask],
    source: ModelFolder,
    path: str,
    overwrite: bool = False,
    precision: str = FLOAT32,
) -> None:
    """Exports a fine-tuned model as the SavedModel of its task.

    Args:
      task_class, source: the task and the model.
      path, overwrite, precision: see `export_saved_model`.

    Raises:
      AlbertError: there is no such model, or the task has no SavedModel.
    """
    task = _load_task(task_class, source)
    model = task.build_model()
    source.load(model)
    export = task_export(task, model, precision)
    source.publish(export, path, task.tokenizer, model, overwrite)


def _load_task(task_class: type[FineTuningTask], source: ModelFolder) -> FineTuningTask:
    """Loads the task of a model, whose files may lie above a checkpoint."""
    task_file = find_beside(source.path, TASK_FILE)
    task = task_class.load(os.path.dirname(task_file) if task_file else source.path)
    if source.is_one_of_several:
        task.forget_evaluation()
    return task


def task_export(task: FineTuningTask, model: keras.Model, precision: str = FLOAT32) -> Export:
    """Returns the SavedModel of a task, to be published.

    In bfloat16, the SavedModel keeps the kernels of dense layers in that type: it only answers.

    Args:
      task: of the model.
      model: in float32, with its weights.
      precision: one of PRECISIONS.
    """

    def build(dtype: str) -> keras.Model:
        with graph_mode(GraphMode.SERVED):
            return task.build_model(dtype)

    return export_in(precision, model, build, task.export)


def export_saved_model(
    directory: str,
    path: str,
    overwrite: bool = False,
    precision: str = FLOAT32,
) -> None:
    """Exports a model as a SavedModel.

    The SavedModel of a fine-tuned model takes text; that of a pretrained model is an encoder with
    the pretraining heads, or without them if the model has no sentence order head. See
    docs/export.md.

    Args:
      directory: the output directory of a run, or any model that load_pretrained takes.
      path: the folder to create; for TensorFlow Serving a number, as in "models/rte/1".
      overwrite: replace an earlier export at `path`; see folders.new_folder.
      precision: "float32", or "mixed_bfloat16" for processors with units for it: faster, and less
        exact.

    Raises:
      AlbertError: there is no model, it has no vocabulary, the folder exists, an argument is not a
        path, or the precision is not valid.

    Example:
      albert_tf.export_saved_model("runs/rte", "exports/rte")
    """
    if precision not in tuple(PRECISIONS):
        raise AlbertError(
            f"Unknown precision {short_repr(precision)}; use one of {', '.join(PRECISIONS)}."
        )
    source = ModelFolder(files.path_of(directory, "model"))
    path = files.path_of(path, "folder to make")
    task_file = find_beside(source.path, TASK_FILE)
    if not task_file:
        if source.lacks_sentence_order:
            log.info("The model has no sentence order head; its encoder is exported alone.")
            return export_encoder(source, path, False, overwrite, precision)
        return export_encoder(source, path, True, overwrite, precision)
    name = files.read_object(task_file, "task description").get("task")
    task_class = find_task(name)
    if task_class is None:
        raise AlbertError(
            f"{task_file} describes an unknown task, {short_repr(name)}; import the module "
            f"that defines "
            "it first."
        )
    return export_task(task_class, source, path, overwrite, precision)


def export_ids(
    source: ModelFolder,
    task_class: type[FineTuningTask] | None,
    path: str,
    id_format: IdFormat,
    overwrite: bool = False,
) -> None:
    """Exports a model that takes token ids, with vocabulary, report and card.

    Args:
      source: the model.
      task_class: the task it was fine-tuned for; None exports the encoder.
      path: the folder to create.
      id_format: the format of the model.
      overwrite: see `export_saved_model`.

    Raises:
      AlbertError: the task has no such model.
    """
    labels: tuple[str, ...] = ()
    if task_class:
        task = _load_task(task_class, source)
        model, tokenizer = task.build_model(), task.tokenizer
        kind, function, labels = task.export_ids(model)
    else:
        config, tokenizer = source.config_and_tokenizer()
        model = AlbertEncoder(config, dtype="float32")
        kind, function = ENCODER, encoder_outputs(model)
    source.load(model)
    content = id_format.convert(function, model.named_weights())
    report = check(id_format, content, function, model.config)
    with folders.new_folder(path, overwrite, source.path) as folder:
        files.write_bytes(os.path.join(folder, id_format.file), content)
        tokenizer.save(folder)
        if labels:
            files.write_text(os.path.join(folder, "labels.txt"), "\n".join(labels) + "\n")
        files.write_json(os.path.join(folder, REPORT_FILE), report)
        card = model_card(
            Kind(f"{kind.title} for {id_format.title}", id_format.example),
            {"serving_default": serving_signature(function, input_specs())},
            source.facts(path, tokenizer, model),
            summary(report),
        )
        files.write_text(os.path.join(folder, CARD_FILE), card)
    log.info(f"The {id_format.title} model is in {path}; {CARD_FILE} there describes it.")
    log.info(summary(report))
