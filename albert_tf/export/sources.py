# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From a folder with a model to the SavedModel made of it."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export import tflite
from albert_tf.export.classifier import build_classifier
from albert_tf.export.encoder import encoder_export, serving_signature
from albert_tf.export.formats import check_lite
from albert_tf.export.model_card import CARD_FILE, ModelFacts, model_card
from albert_tf.export.multiple_choice import build_multiple_choice
from albert_tf.export.preprocessor import build_preprocessor
from albert_tf.export.publish import REPORT_FILE, Export, publish
from albert_tf.export.serving import input_specs
from albert_tf.export.squad import build_squad
from albert_tf.export.text_probes import (
    classifier_probes,
    multiple_choice_probes,
    preprocessor_probes,
    squad_probes,
)
from albert_tf.io import files
from albert_tf.io.json_values import shown
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.model_folders import SEEDS_FILE, TASK_FILE, model_folder
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.tasks.squad.answering import QuestionAnswerer
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.thresholds import DEFAULT
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.training.checkpoints import load_weights
from albert_tf.training.results import RESULTS_FILE
from albert_tf.training.run_identity import RUN_CONFIG, TRAINING_DATA
from albert_tf.weights.load import open_source
from albert_tf.weights.source import Source, find_beside


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A model to export: anything `albert_tf.weights.load.open_source` recognises.

    Attributes:
      path: an output directory, a release, a Hugging Face folder, …
      checkpoint_name: of a checkpoint in the folder `path`; None for the best, newest or only one.
      lower_case: see Tokenizer.from_file.
    """

    path: str
    checkpoint_name: str | None = None
    lower_case: bool | None = None

    def __post_init__(self) -> None:
        """Looks into an output directory of several seeds for the best one."""
        object.__setattr__(self, "path", model_folder(self.path.rstrip("/")))

    @property
    def weights(self) -> str:
        """What the weights are loaded from."""
        return os.path.join(self.path, self.checkpoint_name) if self.checkpoint_name else self.path

    @functools.cached_property
    def _source(self) -> Source:
        return open_source(self.weights)

    def config_and_tokenizer(self) -> tuple[AlbertConfig, Tokenizer]:
        """The model's configuration and tokenizer.

        Raises:
          AlbertError: one of them is missing, or they do not belong together.
        """
        found = self._source.config(), self._source.tokenizer(self.lower_case)
        for value, what in zip(
            found, (CONFIG_FILE, f"vocabulary ({SPEC_FILE}, *.model, vocab.txt)")
        ):
            if value is None:
                raise AlbertError(f"With {self.weights} lies no {what}, or more than one.")
        config, tokenizer = found
        if tokenizer.vocab_size != config.vocab_size:
            raise AlbertError(
                f"The vocabulary in {self.path} has {tokenizer.vocab_size} pieces, but the model "
                f"vocab_size={config.vocab_size}; put the checkpoint's own vocabulary there."
            )
        return config, tokenizer

    def load(self, model: AlbertModel) -> None:
        """Gives a model all its weights.

        Raises:
          AlbertError: the checkpoint lacks one.
        """
        print(load_weights(self._source, model.named_weights(), whole=True))

    def facts(self, name: str, tokenizer: Tokenizer, model: AlbertModel | None) -> ModelFacts:
        """What the files beside the weights tell of the model.

        Args:
          name: of the export.
          tokenizer: of the model.
          model: None for a preprocessor alone.
        """
        if model is None:
            return ModelFacts(name, tokenizer=tokenizer.spec)

        def read(file: str) -> dict[str, Any]:
            path = find_beside(self.weights, file)
            return files.read_object(path) if path else {}

        run, train = (read(RUN_CONFIG).get(part) for part in ("run", "train"))
        if not (isinstance(run, dict) and isinstance(train, dict)):
            run, train = {}, {}
        weights = os.path.basename(self._source.location)
        return ModelFacts(
            name,
            model.config,
            sum(int(tf.size(weight)) for weight in model.named_weights().values()),
            tokenizer.spec,
            origin=f"The weights are those of `{weights}`.",
            task=read(TASK_FILE),
            training={**run, **{k: v for k, v in train.items() if k == "max_steps"}},
            data=read(TRAINING_DATA),
            evaluation={**read(RESULTS_FILE), **read(SEEDS_FILE)},
        )


def _publish(source: ModelFolder, export: Export, path: str, overwrite: bool,
             tokenizer: Tokenizer, model: AlbertModel | None = None) -> None:  # fmt: skip
    with files.new_folder(path, overwrite, source.path) as folder:
        name = os.path.basename(path.rstrip("/"))
        difference = publish(export, folder, source.facts(name, tokenizer, model))
    print(f"The SavedModel is in {path}; {CARD_FILE} there describes it.")
    print(f"Checked in a fresh process: outputs differ by at most {difference:.1e}.")


def export_preprocessor(
    source: ModelFolder, path: str, seq_length: int, overwrite: bool = False
) -> None:
    """Writes the preprocessor SavedModel; see albert_tf.export.preprocessor."""
    tokenizer = source.config_and_tokenizer()[1]
    root, signatures = build_preprocessor(tokenizer, seq_length)
    probes = preprocessor_probes(tokenizer, seq_length)
    _publish(source, Export("preprocessor", root, signatures, probes), path, overwrite, tokenizer)


def export_encoder(
    source: ModelFolder, path: str, with_heads: bool, overwrite: bool = False
) -> None:
    """Writes the encoder SavedModel, on request with its heads; see albert_tf.export.encoder."""
    config, tokenizer = source.config_and_tokenizer()
    model = (AlbertPretrainer if with_heads else AlbertEncoder)(config, dtype="float32")
    source.load(model)
    _publish(source, encoder_export(model, tokenizer), path, overwrite, tokenizer, model)


def export_classifier(source: ModelFolder, path: str, overwrite: bool = False) -> None:
    """Writes the SavedModel of a fine-tuned classifier; see albert_tf.export.classifier."""
    task = TextClassificationTask.load(source.path)
    model = task.build_model()
    source.load(model)
    root, signatures = build_classifier(task, model)
    export = Export("classifier", root, signatures, classifier_probes(task, model))
    _publish(source, export, path, overwrite, task.tokenizer, model)


def export_multiple_choice(source: ModelFolder, path: str, overwrite: bool = False) -> None:
    """Writes the SavedModel of a multiple-choice model; see albert_tf.export.multiple_choice."""
    task = MultipleChoiceTask.load(source.path)
    model = task.build_model()
    source.load(model)
    root, signatures = build_multiple_choice(task, model)
    export = Export("multiple_choice", root, signatures, multiple_choice_probes(task, model))
    _publish(source, export, path, overwrite, task.tokenizer, model)


def export_squad(source: ModelFolder, path: str, overwrite: bool = False) -> None:
    """Writes the SavedModel of a SQuAD model; see albert_tf.export.squad."""
    task = SquadTask.load(source.path)
    model = task.build_model()
    source.load(model)
    threshold = (task.threshold or DEFAULT).value
    root, signatures = build_squad(task, model, threshold)
    probes = squad_probes(QuestionAnswerer(task, model, threshold))
    _publish(
        source, Export("squad", root, signatures, probes), path, overwrite, task.tokenizer, model
    )


_BY_TASK = {
    TextClassificationTask.name: export_classifier,
    MultipleChoiceTask.name: export_multiple_choice,
    SquadTask.name: export_squad,
}


def export_saved_model(directory: str, path: str, overwrite: bool = False) -> None:
    """Exports the model of an output directory as the SavedModel that fits its task.

    A fine-tuned model becomes one that takes text, a pretrained one an encoder with its heads; see
    docs/export.md.

    Args:
      directory: the output directory of a run, or any model that load_pretrained takes.
      path: the folder to make.
      overwrite: replace an earlier export at `path`; see files.new_folder.

    Raises:
      AlbertError: there is no model, it has no vocabulary, there is something at `path`, or one
        of both is no path.

    Example:
      albert_tf.export_saved_model("runs/rte", "exports/rte")
    """
    source = ModelFolder(files.path_of(directory, "model"))
    path = files.path_of(path, "folder to make")
    task_file = find_beside(source.path, TASK_FILE)
    if task_file:
        task = files.read_object(task_file, "task description").get("task")
        if not isinstance(task, str) or task not in _BY_TASK:
            raise AlbertError(f"{task_file} describes an unknown task, {shown(task)}.")
        _BY_TASK[task](source, path, overwrite)
    else:
        export_encoder(source, path, with_heads=True, overwrite=overwrite)


def export_lite(
    source: ModelFolder, kind: str, path: str, quantization: str, overwrite: bool = False
) -> None:
    """Writes a TensorFlow Lite model with vocabulary, report and card; see export.tflite.

    Args:
      source: the model.
      kind: "model" or "classifier"; others are refused.
      path: the folder to make.
      quantization: of tflite.QUANTIZATIONS.
      overwrite: see `export_saved_model`.
    """
    check_lite(kind)
    labels: tuple[str, ...] = ()
    if kind == "classifier":
        task = TextClassificationTask.load(source.path)
        model, tokenizer, labels = task.build_model(), task.tokenizer, task.spec.labels
        function = tflite.classifier_outputs(task, model)
    else:
        config, tokenizer = source.config_and_tokenizer()
        model = AlbertEncoder(config, dtype="float32")
        function = tflite.encoder_outputs(model)
    source.load(model)
    content = tflite.convert(function, model.named_weights(), quantization)
    report = tflite.numerics(content, function, model.config, quantization)
    with files.new_folder(path, overwrite, source.path) as folder:
        files.write_bytes(os.path.join(folder, "model.tflite"), content)
        tokenizer.save(folder)
        if labels:
            files.write_text(os.path.join(folder, "labels.txt"), "\n".join(labels) + "\n")
        files.write_json(os.path.join(folder, REPORT_FILE), report)
        card = model_card(
            "lite_classifier" if kind == "classifier" else "lite_encoder",
            {"serving_default": serving_signature(function, input_specs())},
            source.facts(os.path.basename(path.rstrip("/")), tokenizer, model),
            tflite.summary(report),
        )
        files.write_text(os.path.join(folder, CARD_FILE), card)
    print(f"The TensorFlow Lite model is in {path}; {CARD_FILE} there describes it.")
    print(tflite.summary(report))
