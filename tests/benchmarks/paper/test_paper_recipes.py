# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The recipes: what they ask for is what the paper says, and faults are told."""

import dataclasses

import pytest

from albert_tf.config import AlbertConfig
from benchmarks.paper.recipes import TABLES, load_recipe

pytestmark = pytest.mark.tooling


def row(table, name, scale="paper"):
    return next(row for row in load_recipe(table, scale).rows if row.name == name)


@pytest.mark.parametrize(
    ("name", "preset", "changes"),
    [
        ("BERT base", "bert_base", {}),
        ("BERT large", "bert_large", {}),
        ("ALBERT base", "albert_base_v1", {}),
        ("ALBERT large", "albert_large_v1", {}),
        # The paper has H / 64 heads, the release 16.
        ("ALBERT xlarge", "albert_xlarge_v1", {"num_attention_heads": 32}),
        # Section 4.8 removes dropout later, for the release.
        ("ALBERT xxlarge", "albert_xxlarge_v1",
         {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}),
    ],
)  # fmt: skip
def test_the_models_of_table_1_are_the_presets(name, preset, changes):
    expected = dataclasses.replace(AlbertConfig.from_preset(preset), **changes)
    assert row("table1", name).config == row("table2", name).config == expected


@pytest.mark.parametrize("table", TABLES)
def test_published_averages_are_those_of_the_published_columns(table):
    recipe = load_recipe(table, "paper")
    tasks = [name for name, column in recipe.columns.items() if "task" in column]
    for r in recipe.rows:
        values = [r.published.get(name) for name in tasks]
        # That of an ensemble is GLUE's own, with both metrics of some tasks.
        if "avg" in r.published and None not in values and r.config:
            means = [sum(v) / len(v) if isinstance(v, list) else v for v in values]
            assert sum(means) / len(means) == pytest.approx(r.published["avg"], abs=0.1), r.name
