# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From a folder with a model to the SavedModel made of it."""

from __future__ import annotations

import dataclasses
import json
import os

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.convert.load import open_source
from albert_tf.errors import AlbertError
from albert_tf.export.classifier import build_classifier
from albert_tf.export.encoder import attach_tokenizer, build_encoder
from albert_tf.export.multiple_choice import build_multiple_choice
from albert_tf.export.preprocessor import build_preprocessor
from albert_tf.export.saved_model import write_saved_model
from albert_tf.export.squad import build_squad
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks import text_classification
from albert_tf.tasks.fine_tune import model_folder
from albert_tf.tasks.multiple_choice import task as multiple_choice
from albert_tf.tasks.squad.evaluation import DEFAULT_THRESHOLD, load_threshold
from albert_tf.tasks.squad.task import load_squad_task
from albert_tf.tokenization import SPEC_FILE, Tokenizer
from albert_tf.training.checkpoints import load_weights


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A model to export: anything `albert_tf.convert.load.open_source` recognises.

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

    def config_and_tokenizer(self) -> tuple[AlbertConfig, Tokenizer]:
        """The model's configuration and tokenizer.

        Raises:
          AlbertError: one of them is missing, or they do not belong together.
        """
        source = open_source(self.weights)
        found = source.config(), source.tokenizer(self.lower_case)
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
        print(load_weights(self.weights, model.named_weights(), whole=True))


def export_preprocessor(source: ModelFolder, path: str, seq_length: int) -> None:
    """Writes the preprocessor SavedModel; see albert_tf.export.preprocessor."""
    write_saved_model(*build_preprocessor(source.config_and_tokenizer()[1], seq_length), path)


def export_encoder(source: ModelFolder, path: str, with_heads: bool) -> None:
    """Writes the encoder SavedModel, on request with its heads; see albert_tf.export.encoder."""
    config, tokenizer = source.config_and_tokenizer()
    model = (AlbertPretrainer if with_heads else AlbertEncoder)(config, dtype="float32")
    source.load(model)
    root, signatures = build_encoder(model)
    # With its configuration the SavedModel is a source for load_pretrained again.
    content = json.dumps(config.to_dict(), indent=2, sort_keys=True).encode()
    assets = {**attach_tokenizer(root, tokenizer), "config_file": (CONFIG_FILE, content)}
    write_saved_model(root, signatures, path, assets)


def export_classifier(source: ModelFolder, path: str) -> None:
    """Writes the SavedModel of a fine-tuned classifier; see albert_tf.export.classifier."""
    task = text_classification.load_task(source.path, {})
    model = task.build_model()
    source.load(model)
    write_saved_model(*build_classifier(task, model), path)


def export_multiple_choice(source: ModelFolder, path: str) -> None:
    """Writes the SavedModel of a multiple-choice model; see albert_tf.export.multiple_choice."""
    task = multiple_choice.load_task(source.path)
    model = task.build_model()
    source.load(model)
    write_saved_model(*build_multiple_choice(task, model), path)


def export_squad(source: ModelFolder, path: str) -> None:
    """Writes the SavedModel of a SQuAD model; see albert_tf.export.squad."""
    task = load_squad_task(source.path)
    model = task.build_model()
    source.load(model)
    threshold = (load_threshold(source.path) or [DEFAULT_THRESHOLD])[0]
    write_saved_model(*build_squad(task, model, threshold), path)
