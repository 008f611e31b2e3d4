# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A folder with a model to export, and what its files record."""

from __future__ import annotations

import os
from typing import Any

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.pretrained.locate import is_name, locate
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.weights.load import open_source
from albert_tf.weights.run_folder import (
    CHECKPOINTS,
    RESULTS_FILE,
    RUN_CONFIG,
    SEEDS_FILE,
    find_beside,
    find_task,
    model_folder,
)


class ModelFolder:
    """A model to export.

    Attributes:
      given: anything that `albert_tf.weights.load.open_source` accepts.
      path: the folder, archive or checkpoint that it leads to.
      source: what is there.

    Raises:
      AlbertError: there is no model.
    """

    def __init__(self, given: str) -> None:
        self.given = given
        self._located = locate(given.rstrip("/"))
        self.path = model_folder(self._located)
        self.source = open_source(self.path)

    def config_and_tokenizer(
        self, lower_case: bool | None = None
    ) -> tuple[AlbertConfig, Tokenizer]:
        """Returns both; raises AlbertError if one of them is missing, or they do not match."""
        config, tokenizer = self.source.config(), self.source.tokenizer(lower_case)
        if config is None or tokenizer is None:
            what = f"vocabulary ({SPEC_FILE}, *.model, vocab.txt)" if config else CONFIG_FILE
            # If there is no such folder, `location` raises the error for that.
            place = self.given if files.exists(self.path) else self.source.location
            raise AlbertError(f"There is no {what} with {place}, or more than one.")
        config.check_vocabulary(tokenizer.vocab_size, f"in {self.given}")
        return config, tokenizer

    @property
    def is_one_of_several(self) -> bool:
        """Whether the weights are one of several checkpoints, and not those that were evaluated."""
        return not files.isdir(self.path) or os.path.basename(self.path) == CHECKPOINTS

    def sections(self, tokenizer: Tokenizer, model: AlbertModel | None) -> dict[str, Any]:
        """Returns the sections of a model card that the files beside the weights record.

        A preprocessor has no model.
        """
        vocabulary = {"Vocabulary": tokenizer.spec.to_dict()}
        if model is None:
            return vocabulary

        def read(folder, file) -> dict[str, Any]:
            path = find_beside(folder, file)
            return files.read_object(path) if path else {}

        run, config = read(self.path, RUN_CONFIG), model.config.to_dict()
        # Downloaded models lie in folders without a telling name.
        weights = self.given if is_name(self.given) else os.path.basename(self.source.location)
        unknown = "" if run else " How they were trained is not recorded beside them."
        # Beside the folders of several seeds.
        results = {**read(self._located, RESULTS_FILE), **read(self._located, SEEDS_FILE)}
        return {
            "Model": {"parameters": model.count_params(), **config},
            **vocabulary,
            "Task": find_task(self.path),
            "Training": f"The weights are those of `{weights}`.{unknown}",
            "Settings": {**run.get("run", {}), **run.get("train", {})},
            "Data": run.get("data"),
            "Evaluation": {} if self.is_one_of_several else results,
        }
