# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads the configuration and the tokenizer of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.huggingface.config import read_config
from albert_tf.io import files
from albert_tf.pretrained.locate import locate
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.weights.load import check_architecture, open_source
from albert_tf.weights.source import Source


def load_config(config_file: str | None, checkpoint: str | None) -> AlbertConfig:
    """Loads the configuration of a model that starts from a checkpoint.

    It is the one beside the checkpoint, unless a JSON file, also Hugging Face's config.json, or a
    preset is given.

    Raises:
      AlbertError: there is none, or it does not fit the weights.
    """
    if not config_file:
        return _beside(checkpoint, lambda x: x.config(), "`albert_config_file`", CONFIG_FILE)
    is_json = config_file.endswith(".json")
    is_theirs = is_json and "model_type" in files.read_object(config_file, "model configuration")
    config = read_config(config_file) if is_theirs else AlbertConfig.load(config_file)
    if checkpoint:
        check_architecture(config, checkpoint)
    return config


def load_model_files(
    checkpoint: str | None,
    config_file: str | None = None,
    vocabulary: str | None = None,
    lower_case: bool | None = None,
) -> tuple[AlbertConfig, Tokenizer]:
    """Loads a model's configuration and tokenizer, by default those beside the checkpoint.

    Args:
      checkpoint, config_file: see `load_config`. A preset takes its vocabulary size from the
        tokenizer.
      vocabulary: SentencePiece model, WordPiece vocabulary, tokenizer.json, or a model that has
        one; see Tokenizer.from_file.
      lower_case: see Tokenizer.from_file.

    Raises:
      AlbertError: one of them is neither given nor beside the checkpoint, there is no such
        checkpoint, or the configuration does not fit.
    """
    config = load_config(config_file, checkpoint)
    if vocabulary:
        tokenizer = Tokenizer.from_file(vocabulary, lower_case)
    else:
        setting = "`spm_model_file` or `vocab_file`"
        tokenizer = _beside(checkpoint, lambda x: x.tokenizer(lower_case), setting, SPEC_FILE)
    if config_file in AlbertConfig.preset_names():
        config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    return config, tokenizer


def _beside(checkpoint: str | None, read: Callable[[Source], Any], setting: str, file: str) -> Any:
    """Returns what is read beside a checkpoint; `setting` and `file` name it in errors."""
    if not checkpoint:
        raise AlbertError(f"{setting} is needed: there is no `init_checkpoint` to take it from.")
    source = open_source(checkpoint)
    if found := read(source):
        return found
    # If there is no such folder, `location` raises the error for that.
    place = checkpoint if files.exists(locate(checkpoint)) else source.location
    raise AlbertError(f"{setting} is needed: there is no {file} beside {place}.")
