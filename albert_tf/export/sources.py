# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From a folder with a model to the SavedModel made of it."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

from albert_tf.config import AlbertConfig
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
from albert_tf.tasks.finetuning import find_model_file, load_model_files
from albert_tf.tasks.multiple_choice import task as multiple_choice
from albert_tf.tasks.squad.evaluation import DEFAULT_THRESHOLD, load_threshold
from albert_tf.tasks.squad.task import load_squad_task
from albert_tf.tokenization import SPEC_FILE, Tokenizer
from albert_tf.training.checkpoints import find_checkpoint, load_weights

#: The checkpoint in the folders of the TF1 release.
RELEASE_CHECKPOINT = "model.ckpt-best"


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A folder with albert_config.json, a vocabulary and a checkpoint.

    Attributes:
      path: an output directory, or the folder of a release.
      checkpoint_name: of the checkpoint in it; None for an output directory's best or newest one
        and for a release's model.ckpt-best.
      lower_case: see Tokenizer.from_file.
    """

    path: str
    checkpoint_name: str | None = None
    lower_case: bool | None = None

    def __post_init__(self) -> None:
        """Looks into an output directory of several seeds for the best one."""
        object.__setattr__(self, "path", model_folder(self.path.rstrip("/")))

    def checkpoint(self) -> str:
        """The checkpoint's prefix.

        Raises:
          AlbertError: there is none.
        """
        if self.checkpoint_name:
            return find_checkpoint(os.path.join(self.path, self.checkpoint_name))
        released = os.path.join(self.path, RELEASE_CHECKPOINT)
        is_release = tf.io.gfile.exists(f"{released}.index")
        return find_checkpoint(released if is_release else self.path)

    def vocabulary(self) -> str | None:
        """The only vocabulary in a folder without tokenizer.json; None if it has this."""
        if find_model_file(self.path, SPEC_FILE):
            return None
        found = [
            path
            for pattern in ("*.model", "vocab*.txt")
            for path in tf.io.gfile.glob(os.path.join(self.path, pattern))
        ]
        if len(found) != 1:
            raise AlbertError(
                f"{self.path} must hold tokenizer.json, or else one vocabulary (a SentencePiece "
                f".model file or vocab.txt), but holds {len(found)}."
            )
        return found[0]

    def config_and_tokenizer(self) -> tuple[AlbertConfig, Tokenizer]:
        """The model's configuration and tokenizer.

        Raises:
          AlbertError: one of them is missing, or they do not belong together.
        """
        config, tokenizer = load_model_files(None, self.vocabulary(), self.lower_case, self.path)
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
        print(load_weights(self.checkpoint(), model.named_weights(), required_prefix=""))


def export_preprocessor(source: ModelFolder, path: str, seq_length: int) -> None:
    """Writes the preprocessor SavedModel; see albert_tf.export.preprocessor."""
    write_saved_model(*build_preprocessor(source.config_and_tokenizer()[1], seq_length), path)


def export_encoder(source: ModelFolder, path: str, with_heads: bool) -> None:
    """Writes the encoder SavedModel, on request with its heads; see albert_tf.export.encoder."""
    config, tokenizer = source.config_and_tokenizer()
    model = (AlbertPretrainer if with_heads else AlbertEncoder)(config, dtype="float32")
    source.load(model)
    root, signatures = build_encoder(model)
    write_saved_model(root, signatures, path, attach_tokenizer(root, tokenizer))


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
