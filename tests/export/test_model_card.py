# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The card has all facts in the files beside the weights, and none about the machine."""

import copy
import json
import re

from albert_tf.export.saved_model import model_card

SECTIONS = {
    "Task": {"labels": ["bad", "good|great"], "columns": {"text": "sentence", "id": None}},
    "Training": "The weights are those of `ckpt-400`.",
    "Settings": {"learning_rate": 3e-5, "init_checkpoint": "/home/someone/runs/base"},
    "Data": {
        "examples": 67349,
        "options": {"input_files": [{"name": "train.tsv", "bytes": 10}]},
        "statistics": {"mean_length": 13.25},
    },
    "Evaluation": {},
}


def test_all_facts_are_in_the_card_without_folders():
    card = model_card("A classifier", "movies", "load({name!r})", SECTIONS)
    facts = map(json.loads, re.findall("```json\n(.*?)```", card, re.S))
    given = copy.deepcopy(SECTIONS)
    given["Settings"]["init_checkpoint"] = "base"
    assert [*facts] == [given[title] for title in ("Task", "Settings", "Data")]
    assert "/home" not in card
    assert "load('movies')" in card and "ckpt-400" in card
    assert "## Evaluation" not in card
