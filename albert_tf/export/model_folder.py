# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A folder with a model to export, and what its files record."""

from __future__ import annotations

import functools
import os
from typing import Any

import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.log import log
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.pretrained.locate import is_name, locate
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.weights.load import POOLER, SENTENCE_ORDER, load_weights, open_source
from albert_tf.weights.run_folder import (
    CHECKPOINTS,
    RESULTS_FILE,
    RUN_CONFIG,
    SEEDS_FILE,
    TASK_FILE,
    find_beside,
    model_folder,
)
from albert_tf.weights.source import Source


class ModelFolder:
    """A model to export.

    `given` is anything that `albert_tf.weights.load.open_source` accepts, and `path` the folder,
    archive or checkpoint that it leads to.
    """

    def __init__(self, given: str, lower_case: bool | None = None) -> None:
        self.given, self.lower_case = given, lower_case
        self.path = model_folder(locate(given.rstrip("/")))

    @functools.cached_property
    def _source(self) -> Source:
        return open_source(self.path)

    def config_and_tokenizer(self) -> tuple[AlbertConfig, Tokenizer]:
        """Returns both; raises AlbertError if one of them is missing, or they do not match."""
        config, tokenizer = self._source.config(), self._source.tokenizer(self.lower_case)
        for value, what in (
            (config, CONFIG_FILE),
            (tokenizer, f"vocabulary ({SPEC_FILE}, *.model, vocab.txt)"),
        ):
            if value is None:
                raise AlbertError(f"There is no {what} with {self.given}, or more than one.")
        config.check_vocabulary(tokenizer.vocab_size, f"in {self.given}")
        return config, tokenizer

    @property
    def is_one_of_several(self) -> bool:
        """Whether the weights are one of several checkpoints, and not those that were evaluated."""
        is_folder = files.isdir(self.path)
        return not is_folder or os.path.basename(self.path) == CHECKPOINTS

    @property
    def lacks_sentence_order(self) -> bool:
        """Whether the checkpoint has a pooler but no sentence order head."""
        return SENTENCE_ORDER.isdisjoint(self._source.shapes) and {*self._source.shapes} >= POOLER

    def load(self, model: AlbertModel) -> None:
        """Loads all weights of a model; raises AlbertError if the checkpoint lacks one."""
        log.info(load_weights(self._source, model.named_weights(), whole=True))

    def sections(self, tokenizer: Tokenizer, model: AlbertModel | None = None) -> dict[str, Any]:
        """Returns the sections of a model card that the files beside the weights record.

        A preprocessor has no model.
        """
        vocabulary = {"Vocabulary": tokenizer.spec.to_dict()}
        if model is None:
            return vocabulary

        def read(file: str) -> dict[str, Any]:
            path = find_beside(self.path, file)
            return files.read_object(path) if path else {}

        parts = map(read(RUN_CONFIG).get, ("run", "train", "data"))
        run, train, data = (part if isinstance(part, dict) else {} for part in parts)
        parameters = sum(int(tf.size(weight)) for weight in model.named_weights().values())
        # Downloaded models lie in folders without a telling name.
        weights = self.given if is_name(self.given) else os.path.basename(self._source.location)
        unknown = "" if run else " How they were trained is not recorded beside them."
        results = {**read(RESULTS_FILE), **read(SEEDS_FILE)}
        return {
            "Model": {"parameters": f"{parameters:,}", **model.config.to_dict()},
            **vocabulary,
            "Task": read(TASK_FILE),
            "Training": f"The weights are those of `{weights}`.{unknown}",
            "Settings": {**run, "max_steps": train.get("max_steps")},
            "Data": data,
            "Evaluation": {} if self.is_one_of_several else results,
        }
