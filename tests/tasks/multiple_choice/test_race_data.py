# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading RACE in all its layouts, and questions from JSON lines; errors name the place."""

from __future__ import annotations

import collections
import dataclasses
import json
import shutil

import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.multiple_choice.data import read_questions, read_race

SWAG = {
    "id": "swag-1",
    "context": "A girl ties her skates. She",
    "options": ["glides over the ice.", "eats the ice.", "is the ice."],
    "label": 0,
}


def without_place(examples):
    return [dataclasses.replace(example, where="") for example in examples]


def write_lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def edit_article(race, **changes):
    path = race / "dev/high/3.txt"
    article = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in article.items() if v is not None}))


def test_questions_come_with_their_article_options_label_and_group(race):
    examples = read_race(str(race), "dev")
    assert [e.id for e in examples] == [
        "middle10.txt-0", "middle10.txt-1", "middle9.txt-0", "high3.txt-0"
    ]  # fmt: skip
    assert [e.group for e in examples] == ["middle"] * 3 + ["high"]
    assert [e.label for e in examples] == [0, 1, 0, 3]
    assert examples[1].question == "Who has a green kite?"
    assert examples[1].options == ("Ada", "Tom", "Nobody", "Their dog")
    assert examples[0].context.startswith("Ada has a red kite.\nHer brother")
    assert examples[0].context is examples[1].context


def test_articles_that_were_joined_for_the_tf1_release_are_read_once(race):
    expected = read_race(str(race), "dev")
    folder = race / "dev/middle"
    text = "".join(path.read_text() for path in sorted(folder.glob("*.txt")))
    (folder / "all.txt").write_text(text)
    assert read_race(str(race), "dev") == expected


def test_data_dir_may_be_the_parent_of_a_folder_race(race, tmp_path):
    expected = without_place(read_race(str(race), "dev"))
    (tmp_path / "data").mkdir()
    shutil.move(str(race), str(tmp_path / "data" / "RACE"))
    assert without_place(read_race(str(tmp_path / "data"), "dev")) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": None}, r"3\.txt: 'options' must be a list; the keys are id, article"),
        ({"article": None}, r"3\.txt, question 1: the context must be a string, not None"),
        ({"answers": ["A", "B"]}, r"3\.txt: 1 questions have 1 lists of options and 2 answers"),
        ({"options": [["a", "b", "c", 4]]}, r"3\.txt, question 1: the option must be a string"),
    ],
)
def test_malformed_articles_are_named_by_file_and_question(race, changes, message):
    edit_article(race, **changes)
    with pytest.raises(AlbertError, match=message):
        read_race(str(race), "dev")


def test_empty_and_missing_folders_are_named(race, tmp_path):
    (race / "dev/high/3.txt").unlink()
    with pytest.raises(AlbertError, match=r"dev/high contains no articles"):
        read_race(str(race), "dev")
    with pytest.raises(AlbertError, match=r"train/middle is not there; `data_dir`"):
        read_race(str(race), "train")


def test_json_lines_hold_any_number_of_options(tmp_path):
    lettered = {"question": "Ice is _ .", "options": ["cold", "hot", "loud"], "answer": "A"}
    unlabelled = {"context": "He", "options": ["sat", "sang", "slept"], "label": None}
    path = write_lines(tmp_path / "train.jsonl", SWAG, lettered, unlabelled)
    first, second, third = read_questions(path)
    assert (first.id, second.id, third.id) == ("swag-1", "1", "2")
    assert (first.label, second.label, third.label) == (0, 0, None)
    assert (first.question, second.context) == ("", "")
    assert first.options == tuple(SWAG["options"])
    assert second.where == f"{path}:2"
    text = '"[""cold"", ""hot"", ""loud""]"'
    rows = f"question,options,label\nIce is _ .,{text},0\nHe,{text},-1\n"
    (tmp_path / "train.csv").write_text(rows)
    first, third = read_questions(str(tmp_path / "train.csv"))
    assert (first.options, first.label, third.label) == (second.options, 0, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "A"}, r"jsonl:2.* has a 'label' and an 'answer'; give one of them"),
        ({"label": 3}, r"jsonl:2: the label 3 is not one of 0 to 2"),
        ({"label": True}, r"jsonl:2: the label True is not one"),
        ({"options": ["a", "b"]}, r"jsonl:2: 2 options, but the first question has 3"),
        ({"context": None}, r"jsonl:2: there is neither a context nor a question"),
    ],
)
def test_malformed_json_lines_are_named_by_line(tmp_path, changes, message):
    row = {k: v for k, v in {**SWAG, **changes}.items() if v is not None}
    path = write_lines(tmp_path / "train.jsonl", SWAG, row)
    with pytest.raises(AlbertError, match=message):
        read_questions(path)


def test_an_id_that_two_questions_share_is_an_error_with_both_places(race, tmp_path):
    shutil.copy(race / "dev/high/3.txt", race / "dev/high/4.txt")
    with pytest.raises(AlbertError, match=r"4\.txt, question 1: the id 'high3.txt-0' .*3\.txt, q"):
        read_race(str(race), "dev")
    path = write_lines(tmp_path / "train.jsonl", {**SWAG, "id": "a"}, SWAG, {**SWAG, "id": "a"})
    with pytest.raises(AlbertError, match=r"jsonl:3: the id 'a' was used at .*jsonl:1 already"):
        read_questions(path)


@pytest.mark.realdata
def test_the_distribution_is_read_completely(real_race):
    dev = read_race(real_race, "dev")
    assert len(dev) == 4887
    assert collections.Counter(e.group for e in dev) == {"middle": 1436, "high": 3451}
    assert len({e.id for e in dev}) == 4887
    assert collections.Counter(e.label for e in dev) == {0: 1067, 1: 1291, 2: 1303, 3: 1226}
    train = read_race(real_race, "train")
    assert len({id(e.context) for e in train}) == 1000
