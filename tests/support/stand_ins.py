# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Small files and models under the names that the commands of the pages use."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from albert_tf.config import AlbertConfig
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.glue.tasks import TASKS, Split
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.tagging.data import TaggingSpec
from albert_tf.tasks.tagging.task import TaggingTask
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import tiny_config
from tests.support.small_tasks import write_best, write_run

ROOT = Path(__file__).resolve().parents[2]
#: The vocabulary of the bundled model, in English.
VOCABULARY = ROOT / "albert_tf/pretrained/albert_tiny_books/spiece.model"
AUTHORS = ("darwin", "dickens", "doyle", "smith", "spinoza", "washington")
#: Sentences of a text that is longer than the sequences on the pages, so that it is cut.
_LONG = 30


def sentences() -> list[str]:
    """Returns 480 English sentences."""
    with open(ROOT / "albert_tf/sample_data/dev.tsv", encoding="utf-8") as f:
        return [
            row["sentence"] for row in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]


def tokenizer() -> Tokenizer:
    """Returns a tokenizer of English."""
    return Tokenizer.from_file(str(VOCABULARY))


def config(**changes: object) -> AlbertConfig:
    """Returns the configuration of a tiny model of that vocabulary for sequences up to 512."""
    return tiny_config(tokenizer().vocab_size, **{"max_position_embeddings": 512, **changes})


def write_pretrained(folder: Path) -> None:
    """Writes an output directory of run_pretraining.py, with random weights."""
    config().to_json(str(folder / "albert_config.json"))
    tokenizer().save(str(folder))
    write_best(AlbertPretrainer(config()), folder)


def write_classifier(folder: Path, labels: Sequence[str] = AUTHORS, length: int = 80) -> None:
    """Writes an output directory of run_classifier.py, with random weights."""
    spec = ClassificationSpec(tuple(labels), length)
    write_run(TextClassificationTask(config(), tokenizer(), spec), folder)


def write_squad_run(folder: Path) -> None:
    """Writes an output directory of run_squad.py for SQuAD 2.0 that answers every question."""
    spec = SquadSpec("2.0", max_seq_length=64, doc_stride=32, max_query_length=16)
    write_run(SquadTask(config(), tokenizer(), spec), folder)
    kept = {"thresholds": {"null_threshold": 1e6}, "checkpoint": None}
    (folder / "thresholds.json").write_text(json.dumps(kept))


def write_race_run(folder: Path) -> None:
    """Writes an output directory of run_race.py, with random weights."""
    spec = MultipleChoiceSpec(max_seq_length=64, max_qa_length=32)
    write_run(MultipleChoiceTask(config(), tokenizer(), spec), folder)


def write_tagger_run(folder: Path) -> None:
    """Writes an output directory of run_tagger.py, with random weights."""
    write_run(TaggingTask(config(), tokenizer(), TaggingSpec(("B-X", "I-X", "O"), 48)), folder)


def write_glue(folder: Path, tasks: Sequence[str]) -> None:
    """Writes 40 rows of a task's labelled files, and as many of the others as the server expects.

    Every fourteenth text is long.
    """
    for task in map(TASKS.__getitem__, tasks):
        for first, split in enumerate(task.splits.values()):
            path = folder / split.file
            path.parent.mkdir(parents=True, exist_ok=True)
            labels = task.labels or ("0.5", "2.75", "4.800")
            path.write_text(
                "".join(f"{line}\n" for line in _glue_lines(split, labels, first)), "utf-8"
            )


def _glue_lines(split: Split, labels: Sequence[str], first: int) -> list[str]:
    columns, texts = split.columns, sentences()
    used = (columns.id, columns.text, columns.text_pair, columns.label)
    names = split.header or [name for name in used if name]
    lines = [] if split.header else ["\t".join(names)]
    for i in range(split.rows or 40):
        text = " ".join(texts[:_LONG]) if i % 14 == 13 else texts[(first + i) % len(texts)]
        row = {columns.id: str(i), columns.text: text, columns.text_pair: texts[-1 - i % 100]}
        row[columns.label] = labels[i % len(labels)]
        lines.append("\t".join(row.get(name, "") for name in names))
    return lines


def squad_file(version: str) -> Mapping[str, object]:
    """Returns the content of a SQuAD file: questions about sentences, and about a long text."""
    texts = sentences()
    paragraphs = []
    for i, context in enumerate([*texts[:20], " ".join(texts[:_LONG])]):
        word = context.split()[-1].rstrip(".;,!?")
        answer = {"text": word, "answer_start": context.rindex(word)}
        question = {"id": f"q{i}", "question": "What is the last word?", "answers": [answer]}
        questions = [{**question, "is_impossible": False} if version == "2.0" else question]
        if version == "2.0":
            other = {"id": f"n{i}", "question": "Who wrote it?", "answers": []}
            questions.append({**other, "is_impossible": True})
        paragraphs.append({"context": context, "qas": questions})
    return {"version": version, "data": [{"title": "T", "paragraphs": paragraphs}]}


def write_race(folder: Path) -> None:
    """Writes two texts of each split and group, with questions; the second is long."""
    texts = sentences()
    for split in ("train", "dev", "test"):
        for group in ("middle", "high"):
            (folder / split / group).mkdir(parents=True)
            for i, text in enumerate([" ".join(texts[:4]), " ".join(texts[:_LONG])]):
                article = {
                    "id": f"{group}{i}.txt",
                    "article": text,
                    "questions": ["He went _ .", "What is it about?"],
                    "options": [["home", "out", "up", "away"], ["tin", "trade", "birds", "law"]],
                    "answers": ["A", "C"],
                }
                if split == "train":  # Without one question of each text of the others.
                    article |= {k: article[k][:1] for k in ("questions", "options", "answers")}
                (folder / split / group / f"{i}.txt").write_text(json.dumps(article))
