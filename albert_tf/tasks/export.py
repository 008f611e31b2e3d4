# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports the model of an output directory as a SavedModel, for TensorFlow Lite, or as ONNX."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator

from albert_tf.errors import AlbertError
from albert_tf.export.hub import ENCODER, encoder_export, preprocessor_export
from albert_tf.export.id_formats import ONNX, TFLITE, encoder_outputs, ids_export
from albert_tf.export.model_folder import ModelFolder
from albert_tf.export.saved_model import INT8, Export, export_in, publish
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.base import FineTuningTask
from albert_tf.training.specs import BFLOAT16, FLOAT32
from albert_tf.weights.run_folder import TASK_FILE, find_beside

#: Packages of the library's tasks; other tasks are found once their module has been imported.
_BUILT_IN = ("classification", "multiple_choice", "squad", "tagging")
SAVED_MODEL = "saved_model"
#: The precisions of each format.
FORMATS = {SAVED_MODEL: (FLOAT32, BFLOAT16), TFLITE: (FLOAT32, INT8), ONNX: (FLOAT32,)}
#: What can be exported other than the model of a task.
ENCODER_TYPE, PRETRAINED_TYPE, PREPROCESSOR_TYPE = "model", "model_with_mlm", "preprocessing"


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
        faster, and less exact; for "tflite" also "int8".
      export_type: "model" (the encoder), "model_with_mlm" (with the pretraining heads) or
        "preprocessing" (tokenizer and packing). None: the model of the run's task, which as a
        SavedModel takes text. Without a task, a SavedModel has the pretraining heads, if the model
        has a sentence order head; other formats have the encoder.
      file_format: "saved_model"; "tflite" or "onnx" for encoders and classifiers, which then take
        token ids.
      seq_length: default length of a preprocessor's outputs, in tokens.
      lower_case: of a model without a task, see Tokenizer.from_file.

    Raises:
      AlbertError: there is no model, it has no vocabulary, the folder exists, an argument is not a
        path, the model has no such type, format or precision, or its export differs from it.

    Example:
      albert_tf.export_model("runs/rte", "exports/rte")
    """
    source = ModelFolder(files.path_of(directory, "model"), lower_case)
    path = files.path_of(path, "folder to make")
    types = (None, ENCODER_TYPE, PRETRAINED_TYPE, PREPROCESSOR_TYPE)
    if export_type not in types:
        raise AlbertError(
            f"`export_type`={short_repr(export_type)} must be {', '.join(types[1:])} or None."
        )
    if precision not in FORMATS.get(file_format, ()):
        formats = "; ".join(f"{name}: {', '.join(values)}" for name, values in FORMATS.items())
        raise AlbertError(
            f"`format`={short_repr(file_format)} cannot be combined with `precision`="
            f"{short_repr(precision)}; formats and precisions are {formats}."
        )
    if export_type in types[2:] and file_format != SAVED_MODEL:
        raise AlbertError(
            f"`format`={file_format} is for encoders and classifiers, whose models can take token "
            f"ids; leave out `export_type`={export_type}."
        )
    if export_type == PREPROCESSOR_TYPE and precision != FLOAT32:
        raise AlbertError("A preprocessor has no `precision`; leave it out.")
    task = None if export_type else _load_task(source)
    if task:
        tokenizer, build = task.tokenizer, task.build_model
    else:
        config, tokenizer = source.config_and_tokenizer()
        if export_type == PREPROCESSOR_TYPE:
            export = preprocessor_export(tokenizer, seq_length)
            publish(export, path, source.sections(tokenizer), overwrite, source.path)
            return
        with_heads = export_type != ENCODER_TYPE and file_format == SAVED_MODEL
        if with_heads and not export_type and source.lacks_sentence_order:
            log.info("The model has no sentence order head; its encoder is exported alone.")
            with_heads = False
        build = functools.partial(AlbertPretrainer if with_heads else AlbertEncoder, config)
    model = build(FLOAT32)
    source.load(model)
    if file_format != SAVED_MODEL:
        title, function, labels = ENCODER.title, encoder_outputs(model), ()
        if task:
            title, function, labels = task.export_ids(model)
        export = ids_export(title, function, model, tokenizer, labels, file_format, precision)
    elif task:
        export = task_export(task, model, precision)
    else:
        export = export_in(precision, model, build, lambda m: encoder_export(m, tokenizer))
    publish(export, path, source.sections(tokenizer, model), overwrite, source.path)


def _subclasses(cls: type) -> Iterator[type]:
    """Yields all classes derived from a class."""
    for derived in cls.__subclasses__():
        yield derived
        yield from _subclasses(derived)


def _load_task(source: ModelFolder) -> FineTuningTask | None:
    """Loads the task of a model, whose files may lie above a checkpoint; None without one."""
    task_file = find_beside(source.path, TASK_FILE)
    if not task_file:
        return None
    name = files.read_object(task_file, "task description").get("task")
    for package in _BUILT_IN:
        importlib.import_module(f"albert_tf.tasks.{package}.task")
    classes = [cls for cls in _subclasses(FineTuningTask) if vars(cls).get("name") == name]
    if not classes:
        raise AlbertError(
            f"{task_file} describes an unknown task, {short_repr(name)}; import the module that "
            "defines it first."
        )
    if source.lower_case is not None:
        raise AlbertError(
            "`do_lower_case` would be ignored: a fine-tuned model keeps its tokenizer."
        )
    # A notebook may have defined its class several times.
    task = classes[-1].load(os.path.dirname(task_file))
    if source.is_one_of_several:
        task.forget_evaluation()
    return task


def publish_task(
    task: FineTuningTask, model: AlbertModel, folder: str, path: str, overwrite: bool = False
) -> None:
    """Exports a model in memory, whose run is in `folder`; for the rest see `export_model`."""
    source, path = ModelFolder(folder), files.path_of(path, "folder to make")
    sections = source.sections(task.tokenizer, model)
    sections["Task"] = {"task": task.name, **task.task_file()}
    publish(task_export(task, model), path, sections, overwrite, source.path)


def task_export(task: FineTuningTask, model: AlbertModel, precision: str = FLOAT32) -> Export:
    """Returns the SavedModel of a task with a float32 model, to be published.

    In bfloat16, the SavedModel keeps the kernels of dense layers in that type: it only answers.
    """

    def build(dtype: str) -> keras.Model:
        with graph_mode(GraphMode.SERVED):
            return task.build_model(dtype)

    return export_in(precision, model, build, task.export)
