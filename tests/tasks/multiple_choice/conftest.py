# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A small data set in the layout of RACE, and a vocabulary for it."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.support.real_data import real_data

ARTICLES = {
    "middle/10.txt": {
        "id": "middle10.txt",
        "article": "Ada has a red kite.\nHer brother Tom has a green one.",
        "questions": ["Ada's kite is _ .", "Who has a green kite?"],
        "options": [["red", "green", "blue", "old"], ["Ada", "Tom", "Nobody", "Their dog"]],
        "answers": ["A", "B"],
    },
    "middle/9.txt": {
        "id": "middle9.txt",
        "article": "It rained all week, so the picnic was held indoors.",
        "questions": ["The picnic was held   _   because of   _  ."],
        "options": [["indoors; rain", "outdoors; sun", "indoors; snow", "twice; wind"]],
        "answers": ["A"],
    },
    "high/3.txt": {
        "id": "high3.txt",
        "article": "The mill on the river ground corn for six villages until a dam was built.",
        "questions": ["What ended the mill's work?"],
        "options": [["a fire", "a flood", "a war", "a dam"]],
        "answers": ["D"],
    },
}


@pytest.fixture
def race(tmp_path) -> pathlib.Path:
    """A folder with the dev split of these articles: a file each, without a line end."""
    for name, article in ARTICLES.items():
        path = tmp_path / "race/dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(article), encoding="utf-8")
    return tmp_path / "race"


@pytest.fixture(scope="session")
def real_race() -> str:
    return str(real_data("race"))
