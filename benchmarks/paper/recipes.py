# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's experiments as data: configs/paper/table<n>.json, and what they have in common.

A recipe has columns and rows. A row that is to be run tells what its model differs in from `row` of
the scale in defaults.json: by named `parts` of the scale, by its own settings, and by those for one
scale alone, each over the ones before. Columns and tasks are explained in defaults.json, too.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files

FOLDER = str(Path(__file__).resolve().parents[2] / "configs" / "paper")
TABLES = tuple(f"table{number}" for number in range(1, 11))
SCALES = ("tiny", "small", "paper")
_ROW_KEYS = {"name", "parts", "published", *SCALES}
_SETTINGS = {
    "text", "objective", "whole_sentences", "dropout", "config", "pretraining", "checkpoint"
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table at one scale.

    Attributes:
      name: as in the table.
      published: the paper's values by column; a list where a cell has several.
      config: the model; None if there is nothing to run.
      text: `megabytes` of the text to read (none: all), `additional` text too.
      objective: sentence objective of the training records: sop, nsp or none.
      whole_sentences: whether no sequence of these records is truncated.
      pretraining: flags of run_pretraining.py.
      checkpoint: step of the checkpoint to fine-tune; None: the best one.
    """

    name: str
    published: Mapping[str, Any]
    config: AlbertConfig | None = None
    text: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    objective: str = "sop"
    whole_sentences: bool = False
    pretraining: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    checkpoint: int | None = None

    def with_seed(self, seed: int) -> Row:
        """The row with another seed for weights, dropout and data order, which its name tells."""
        pretraining = {**self.pretraining, "random_seed": seed}
        name = _seeded(self.name, seed)
        return dataclasses.replace(self, name=name, pretraining=pretraining)

    def model_name(self) -> str:
        """What makes the pretrained model, in a few words."""
        steps = self.pretraining["num_train_steps"]
        seed = self.pretraining.get("random_seed")
        end = f"{steps}steps" + (f"-seed{seed}" if seed is not None else "")
        shape, text = shape_name(self.config), text_name(self.text)
        return f"{shape}-{self.evaluation()}-{text}-{end}"

    def evaluation(self) -> str:
        """The kind of the records, as the columns' `evaluation` names it."""
        return self.objective + ("-whole" if self.whole_sentences else "")


def _seeded(name: str, seed: int) -> str:
    """The name of a row that is trained with this seed."""
    return f"{name}, seed {seed}"


def shape_name(config: AlbertConfig) -> str:
    """A configuration in a few words: layers, H, E, positions, sharing, groups, dropout."""
    groups = f"-G{config.num_hidden_groups}" if config.num_hidden_groups > 1 else ""
    return (
        f"L{config.num_hidden_layers}-H{config.hidden_size}-E{config.embedding_size}"
        f"-P{config.max_position_embeddings}-{config.parameter_sharing}{groups}-dropout{config.hidden_dropout_prob:g}"
    )


def text_name(text: Mapping[str, Any]) -> str:
    """How much of the text, in a few words."""
    amount = f"{text['megabytes']:g}mb" if "megabytes" in text else "all"
    return amount + ("-additional" if text.get("additional") else "")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """An experiment at one scale.

    Attributes:
      name: of its file, such as table5.
      title: the table's.
      section: of the paper.
      columns: what defaults.json says of each column, by name, in order.
      rows: in order.
      notes: sentences for those who read the table.
      speed_of: name of the row that speedups refer to.
      scale: the scale's part of defaults.json.
      tasks: what defaults.json says of the fine-tuning tasks.
    """

    name: str
    title: str
    section: str
    columns: Mapping[str, Mapping[str, Any]]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    speed_of: str | None
    scale: Mapping[str, Any]
    tasks: Mapping[str, Any]

    def with_seeds(self, seeds: Sequence[int]) -> Recipe:
        """The experiment with a row for each seed of a model; the first has the paper's values."""
        rows = []
        for row in self.rows:
            if not row.config:
                rows.append(row)
                continue
            first, *others = (row.with_seed(seed) for seed in seeds)
            rows += [first, *(dataclasses.replace(other, published={}) for other in others)]
        speed_of = self.speed_of and _seeded(self.speed_of, seeds[0])
        return dataclasses.replace(self, rows=tuple(rows), speed_of=speed_of)


def load_recipe(name: str, scale: str, folder: str = FOLDER) -> Recipe:
    """Reads the recipe of a table for a scale.

    Args:
      name: a file's, without .json.
      scale: one of SCALES.
      folder: of the recipes, with defaults.json in it.

    Raises:
      AlbertError: there is no such file, or a row has unknown settings.
    """
    path = os.path.join(folder, f"{name}.json")
    values = files.read_object(path, "recipe")
    defaults = files.read_object(os.path.join(folder, "defaults.json"), "recipes' defaults")
    own = defaults["scales"][scale]
    return Recipe(
        name,
        values["title"],
        values["section"],
        {column: defaults["columns"][column] for column in values["columns"]},
        tuple(_row(row, own, scale, path) for row in values["rows"]),
        tuple(values.get("notes", ())),
        values.get("speed_of"),
        own,
        defaults["tasks"],
    )


def _row(row: Mapping[str, Any], own: Mapping[str, Any], scale: str, path: str) -> Row:
    where = f"{path}: the row {row['name']!r}"
    published = row.get("published", {})
    if "parts" not in row:
        return Row(row["name"], published)
    settings = copy.deepcopy(own["row"])
    direct = {key: value for key, value in row.items() if key not in _ROW_KEYS}
    for changes in (*(own["parts"][part] for part in row["parts"]), direct, row.get(scale, {})):
        odd = sorted(set(changes) - _SETTINGS)
        if odd:
            raise AlbertError(f"{where} has unknown settings: {', '.join(odd)}.")
        for key, value in changes.items():
            old = settings.get(key)
            settings[key] = {**old, **value} if isinstance(old, dict) else value
    dropout, shape = settings.pop("dropout"), settings.pop("config")
    # Section 3.1: the feed-forward size is 4 H, and a head has the same width in all models.
    shape.setdefault("intermediate_size", 4 * shape["hidden_size"])
    shape.setdefault("num_attention_heads", shape["hidden_size"] // own["head_size"])
    config = AlbertConfig(
        vocab_size=own["vocabulary"]["vocab_size"],
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **shape,
    )
    return Row(row["name"], published, config, **settings)
