# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of answers measures: a model in every format, and texts of known lengths."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.export.id_formats import ONNX, TFLITE
from albert_tf.export.saved_model import INT8, publish
from albert_tf.io import folders
from albert_tf.io.text_files import read_lines
from albert_tf.keras2 import keras
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.pretrained import DEFAULT
from albert_tf.pretrained.locate import locate
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.export import ENCODER_TYPE, SAVED_MODEL, export_model, task_export
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import BFLOAT16, FLOAT32
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.conversion import convert
from albert_tf.weights.pretrained_model import load_pretrained

#: Words that fill texts up; any vocabulary has them in one or two pieces.
_SHORT_WORDS = ("a", "the", "and", ".")
_BOOKS = os.path.join(os.path.dirname(__file__), "..", "data", "books_heldout.txt.gz")


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """A model in all formats.

    Attributes:
      folder: holds `weights` (a preset with random weights, saved once), `hf`, `saved_model`,
        `saved_model_bf16`, `saved_model_text` and `saved_model_text_bf16`, `tflite_none`,
        `tflite_int8`, `onnx_export`, `onnx_int8` and `onnx_classifier`.
      name: a bundled model, a path that load_pretrained takes, or a preset.
    """

    folder: str
    name: str

    def path(self, file: str) -> str:
        """Returns the path of a file or folder in `folder`."""
        return os.path.join(self.folder, file)

    @property
    def source(self) -> str:
        """The folder of the weights."""
        saved = self.path("weights")
        return saved if os.path.exists(saved) else locate(self.name)

    def prepare(self, wanted: Collection[str]) -> None:
        """Makes the weights, and those of the wanted files and folders that are missing."""
        os.makedirs(self.folder, exist_ok=True)
        if self.name in AlbertConfig.preset_names():
            self._make("weights", self._save_random_weights)

        def encoder(path: str, file_format: str, precision: str = FLOAT32) -> None:
            export_model(self.source, path, False, precision, ENCODER_TYPE, file_format)

        writers = {
            "hf": lambda path: convert(self.source, "hf", path),
            "saved_model": lambda path: encoder(path, SAVED_MODEL),
            "saved_model_bf16": lambda path: encoder(path, SAVED_MODEL, BFLOAT16),
            "saved_model_text": self._export_classifier,
            "saved_model_text_bf16": lambda path: self._export_classifier(path, BFLOAT16),
            "tflite_none": lambda path: encoder(path, TFLITE),
            "tflite_int8": lambda path: encoder(path, TFLITE, INT8),
            "onnx_export": lambda path: encoder(path, ONNX),
            "onnx_int8": lambda path: encoder(path, ONNX, INT8),
            "onnx_classifier": lambda path: self._export_classifier(path, file_format=ONNX),
        }
        for file, write in writers.items():
            if file in wanted:
                self._make(file, write)

    def _make(self, file: str, write: Callable[[str], object]) -> None:
        if not os.path.exists(self.path(file)):
            write(self.path(file))

    def _save_random_weights(self, path: str) -> None:
        """Saves a preset's model with random weights and the bundled model's vocabulary."""
        tokenizer = Tokenizer.from_file(os.path.join(locate(DEFAULT), "spiece.model"))
        config = AlbertConfig.from_preset(self.name)
        config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
        keras.utils.set_random_seed(0)
        model = AlbertPretrainer(config, dtype="float32")
        weights = {name: variable.numpy() for name, variable in model.named_weights().items()}
        with folders.new_folder(path) as folder:
            write_tf2(folder, config, tokenizer, weights)

    def classifier(self) -> tuple[TextClassificationTask, keras.Model]:
        """Returns a classifier of two labels around the encoder; its head is always the same."""
        source = load_pretrained(self.source)
        spec = ClassificationSpec(("no", "yes"), source.config.max_position_embeddings)
        task = TextClassificationTask(source.config, source.tokenizer, spec)
        keras.utils.set_random_seed(0)
        model = task.build_model()
        weights = source.encoder.named_weights()
        for name, variable in model.named_weights().items():
            if name in weights:
                variable.assign(weights[name])
        return task, model

    def _export_classifier(
        self, path: str, precision: str = FLOAT32, file_format: str = SAVED_MODEL
    ) -> None:
        task, model = self.classifier()
        publish(task_export(task, model, precision, file_format=file_format), path, {})

    def write_inputs(self, path: str, rows: int, length: int) -> str:
        """Writes texts of `length` tokens, their ids, and the outputs that every way should have.

        Returns:
          The path of the .npz file: `texts`, string [rows]; `ids`, int32 [rows, length];
          `pooled_output`, float32 [rows, H]; `probabilities`, float32 [rows, 2].
        """
        task, model = self.classifier()
        tokenizer = task.tokenizer
        texts = make_texts(tokenizer, rows, length - 2)
        ids = [[tokenizer.cls_id, *tokenizer.encode(t), tokenizer.sep_id] for t in texts]
        inputs = {"input_word_ids": tf.constant(ids, tf.int32)}
        np.savez(
            path,
            texts=np.array([text.encode() for text in texts]),
            ids=np.array(ids, np.int32),
            pooled_output=model.encoder(inputs)["pooled_output"].numpy(),
            probabilities=tf.nn.softmax(model(inputs)["logits"]).numpy(),
        )
        return path


def make_texts(tokenizer: Tokenizer, count: int, pieces: int) -> list[str]:
    """Returns texts that the tokenizer cuts into exactly so many pieces, always the same ones."""
    rng = np.random.default_rng(0)
    words = " ".join(line for line in read_lines(_BOOKS) if line).split()
    texts = []
    while len(texts) < count:
        begin = rng.integers(len(words) - pieces)
        chosen = words[begin : begin + pieces]
        while chosen and len(tokenizer.encode(" ".join(chosen))) > pieces:
            chosen.pop()
        while len(tokenizer.encode(" ".join(chosen))) < pieces:
            chosen.append(str(rng.choice(_SHORT_WORDS)))
        if len(tokenizer.encode(" ".join(chosen))) == pieces:
            texts.append(" ".join(chosen))
    return texts
