# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A small data set in the layout of RACE, and a vocabulary for it."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

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


def write_articles(folder: pathlib.Path, articles=ARTICLES) -> pathlib.Path:
    """One file an article, without a line end, as the distribution has them."""
    for name, article in articles.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(article), encoding="utf-8")
    return folder


@pytest.fixture
def race(tmp_path) -> pathlib.Path:
    """A folder with the dev split of the articles above."""
    write_articles(tmp_path / "race" / "dev")
    return tmp_path / "race"


@pytest.fixture(scope="session")
def real_race() -> str:
    root = pathlib.Path(__file__).parents[3]
    data = os.environ.get("ALBERT_DATA_DIR", str(root.parent / "shared" / "data"))
    path = os.path.join(data, "race")
    if not os.path.isdir(path):
        pytest.skip(f"the RACE articles are not in {path}")
    return path
