# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of GLUE, SQuAD and RACE, and predictions for them."""

from __future__ import annotations

import json
from pathlib import Path

from albert_tf.io import files
from albert_tf.tasks.glue.run import read_split
from albert_tf.tasks.glue.tasks import TASKS
from albert_tf.tasks.multiple_choice.data import read_questions, read_race
from albert_tf.tasks.squad.data import Question, answer_span, read_squad
from albert_tf.tasks.squad.scoring import find_best_thresholds, score
from tests.fuzz.targets.target import Target, written

_SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "The river is long. It is (very) old.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "How old?",
                            "is_impossible": False,
                            "answers": [{"text": "(very) old", "answer_start": 25}],
                        },
                        {"id": "q2", "question": "Why?", "is_impossible": True, "answers": []},
                    ],
                }
            ],
        }
    ],
}


_ARTICLE = {
    "id": "high1.txt",
    "article": "A b c.",
    "questions": ["What _ ?", "Why?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
    "answers": ["A", "D"],
}


_QUESTION = {
    "id": 3,
    "context": "A b.",
    "question": "c?",
    "options": ["a", "b", "c", "d"],
    "label": 2,
}


def _read_squad(path: Path) -> None:
    for question in read_squad(str(path), version="2.0"):
        for answer in question.answers:
            answer_span(question, answer)


def _race(folder: Path) -> Path:
    written("dev/middle/1.txt", {**_ARTICLE, "id": "middle1.txt"})(folder)
    return written("dev/high/1.txt", _ARTICLE)(folder)


def _read_race(path: Path) -> None:
    read_race(str(path.parents[2]), "dev")


def _read_questions(path: Path) -> None:
    read_questions(str(path))


def _glue(name: str, content: str) -> Target:
    split = TASKS[name].splits["dev"]
    return Target(
        written(split.file, content), lambda path: read_split(split, str(path.parents[1]))
    )


def _questions(path: Path) -> list[Question]:
    return read_squad(str(written("squad/dev.json", _SQUAD)(path.parent)), version="2.0")


def _score_predictions(path: Path) -> None:
    score(_questions(path), files.read_object(str(path)), version="2.0")


def _score_odds(path: Path) -> None:
    answers = {"q1": "very old", "q2": ""}
    find_best_thresholds(_questions(path), answers, files.read_object(str(path)))


TARGETS = {
    "CoLA": _glue("cola", "gj04\t1\t\ta b.\ngj05\t0\t*\tc d.\n"),
    "RTE": _glue("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n"),
    "QQP": _glue("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n"),
    "STS-B": _glue(
        "sts-b",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tn\tf\t2012\t1\tx\ty\ta\tb\t3.5\n",
    ),
    "SQuAD": Target(written("dev.json", _SQUAD), _read_squad, True),
    "RACE": Target(_race, _read_race, True),
    "multiple choice": Target(written("q.jsonl", json.dumps(_QUESTION)), _read_questions, True),
    "SQuAD predictions": Target(
        written("p.json", {"q1": "very old", "q2": ""}), _score_predictions, True
    ),
    "null odds": Target(written("odds.json", {"q1": -1.5, "q2": 2}), _score_odds, True),
}
