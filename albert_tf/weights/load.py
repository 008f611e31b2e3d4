# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""load_pretrained: any pretrained ALBERT as a model, or an error that says what does not fit."""

from __future__ import annotations

import os
import warnings

import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.files import path_of
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.pretrained import resolve_name
from albert_tf.weights import huggingface
from albert_tf.weights.archive import ENDINGS, unpack
from albert_tf.weights.checkpoint import CheckpointSource
from albert_tf.weights.config_files import HUGGING_FACE_CONFIG, SAVED_MODEL
from albert_tf.weights.huggingface import HuggingFaceSource
from albert_tf.weights.source import LoadReport, Source, assign_weights
from albert_tf.weights.tfhub import HANDLE, SavedModelSource, resolve_handle


def open_source(path: str) -> Source:
    """Recognises what lies at `path`; its weights are not touched yet.

    Args:
      path: an output directory of ours, a folder of checkpoints or a checkpoint's name; a folder
        of the TF1 release or a checkpoint's name in it; a Hugging Face folder; a SavedModel;
        an archive (.tar.gz, .tgz, .tar) of one of these; a TF-Hub handle (https://…); or, where
        nothing of that name lies, the name of a bundled model (see albert_tf.pretrained).

    Raises:
      AlbertError: `path` is no path, an archive is damaged or not to be trusted, or TF-Hub does
        not give the module.
    """
    path = path_of(path, "pretrained model")
    path = resolve_handle(path) if path.startswith(HANDLE) else resolve_name(path)
    if path.endswith(ENDINGS):
        path = unpack(path)
    if os.path.basename(path) in (huggingface.WEIGHTS, huggingface.TORCH_WEIGHTS):
        path = os.path.dirname(path)
    there = {
        name: tf.io.gfile.exists(os.path.join(path, name))
        for name in (SAVED_MODEL, CONFIG_FILE, HUGGING_FACE_CONFIG)
    }
    if there[SAVED_MODEL]:
        return SavedModelSource(path)
    # Where both are, config.json may be anything.
    if there[HUGGING_FACE_CONFIG] and not there[CONFIG_FILE]:
        return HuggingFaceSource(path)
    return CheckpointSource(path)


def check_architecture(config: AlbertConfig, path: str) -> None:
    """Compares what no weight's shape tells with the configuration that lies with the weights.

    Other numbers of layers, groups and positions are left to the names and shapes of the weights:
    deeper models may be started from shallower ones (paper, appendix A.1).

    Args:
      config: of the model that the weights are for.
      path: see `open_source`.

    Raises:
      AlbertError: the number of attention heads or the activation differs.
    """
    own = open_source(path).config()
    for key in ("num_attention_heads", "hidden_act"):
        if own and getattr(own, key) != getattr(config, key):
            raise AlbertError(
                f"{path} was trained with {key}={getattr(own, key)!r}, but the model has "
                f"{getattr(config, key)!r}, which would ruin its outputs; correct "
                "--albert_config_file, or the configuration beside the weights."
            )


def load_pretrained(path: str, allow_partial: bool = False) -> AlbertPretrainer:
    """Loads a pretrained ALBERT of any origin, with every variable accounted for.

    The model has the attributes `config` (the source's own; the number of heads above all is never
    guessed), `tokenizer` (None if the source has none) and `load_report`.

    Args:
      path: see `open_source`.
      allow_partial: accept a source whose heads are others, such as a fine-tuned model: heads that
        it lacks stay at random, as does the pooler, and a warning names what was left out. The
        rest of the encoder must be there, and all layers have to be in the model.

    Raises:
      AlbertError: there is no model at `path`, it cannot be read, has no configuration, has
        another vocabulary than its tokenizer, or lacks a variable, has one of another shape, or
        one that the model has not. All such variables are listed.

    Example:
      model = albert_tf.load_pretrained("albert_tiny_books")
      model(dict(input_word_ids=ids, input_mask=mask, input_type_ids=types))["mlm_logits"]
    """
    source = open_source(path)
    config, tokenizer = source.config(), source.tokenizer()
    if config is None:
        raise AlbertError(
            f"There is no albert_config.json with {source.location}; put it there. The number of "
            "attention heads cannot be told from the weights."
        )
    if tokenizer and tokenizer.vocab_size != config.vocab_size:
        raise AlbertError(
            f"With {source.location} lies a vocabulary of {tokenizer.vocab_size} pieces, but its "
            f"configuration says vocab_size={config.vocab_size}."
        )
    model = AlbertPretrainer(config)
    report = assign_weights(source, model.named_weights())
    _check(report, allow_partial)
    model.tokenizer, model.load_report = tokenizer, report
    return model


def _check(report: LoadReport, allow_partial: bool) -> None:
    parts = []
    whole = not (report.missing_of_encoder or report.unexpected_of_encoder)
    if not whole and report.difference_in_groups:
        parts.append(report.difference_in_groups)
    if report.missing:
        parts.append(f"it lacks {', '.join(report.missing)}")
    if report.unexpected:
        parts.append(f"it also has {', '.join(report.unexpected)}")
    if not parts:
        return
    if allow_partial and whole:
        warnings.warn(f"{report.checkpoint} was loaded in part: {'; '.join(parts)}.", stacklevel=3)
        return
    hint = " A model with other heads can be loaded in part (allow_partial)." if whole else ""
    raise AlbertError(
        f"The checkpoint {report.checkpoint} is not a whole pretrained model: {'; '.join(parts)}."
        + hint
    )
