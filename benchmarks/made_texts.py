# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes tables for run_classifier.py of real text, and measures linear models on them.

  python -m benchmarks.made_texts ends --text=books.txt.gz --glue_dir=glue --output_dir=ends
  python -m benchmarks.made_texts subjects --text=modern.txt.xz --sources=SOURCES.tsv \\
    --output_dir=subjects
  python -m benchmarks.made_texts linear --data_dir=subjects

ends: 50 to 110 words of a book and then a sentence of SST-2, whose label the text has. subjects:
paragraphs of one to three of OpenStax' textbooks, with the names of these, of different chapters in
each file. linear: one-vs-rest logistic regression on TF-IDF weights, as scikit-learn has them, with
the thresholds of dev.csv, on test.csv.
"""

from __future__ import annotations

import csv
import itertools
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.io.text_files import read_lines
from albert_tf.io.text_tables import read_tsv
from albert_tf.tasks.classification.metrics import best_thresholds, multi_label_metrics
from benchmarks.subcommands import run_command

FLAGS = flags.FLAGS
_BOOK_LINES = 200_000
_PREFIX, _CHAPTERS = "osbooks-", 10
_SIZES = {"train": 4000, "dev": 1000, "test": 1000}


def _write(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    os.makedirs(FLAGS.output_dir, exist_ok=True)
    path = os.path.join(FLAGS.output_dir, f"{name}.csv")
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def ends(lines: Sequence[str], rows: Sequence[Sequence[str]], rng: random.Random) -> Iterator:
    """Yields the sentences and labels of rows, with lines of books before each sentence."""
    for sentence, label in rows:
        begin, least, text = rng.randrange(len(lines) - 100), rng.randint(50, 110), []
        while sum(len(line.split()) for line in text) < least:
            text.append(lines[begin + len(text)])
        yield " ".join([*text, sentence]), label


def subjects(
    paragraphs: Mapping[str, Sequence[str]],
    weights: Mapping[str, int],
    size: int,
    rng: random.Random,
) -> Iterator:
    """Yields texts of one to three subjects, drawn by weight, and the subjects' names."""
    for _ in range(size):
        chosen: set[str] = set()
        count = rng.choice([1, 2, 3])
        while len(chosen) < count:
            chosen |= {*rng.choices([*weights], weights.values())}
        order = sorted(chosen)
        rng.shuffle(order)
        yield " ".join(rng.choice(paragraphs[name]) for name in order), "|".join(sorted(chosen))


def _make_ends() -> None:
    lines = itertools.islice(read_lines(FLAGS.text), _BOOK_LINES)
    lines = [line.strip() for line in lines if line.strip()]
    rng = random.Random(0)
    for name, size in (("train", 6000), ("dev", None)):
        path = os.path.join(FLAGS.glue_dir, f"SST-2/{name}.tsv")
        rows = [row for _, row in read_tsv(path)][1:]
        if name == "train":  # Most are parts of sentences.
            rows = [row for row in rows if len(row[0].split()) > 7]
        chosen = rng.sample(rows, size or len(rows))
        _write(name, ["text", "label"], ends(lines, chosen, rng))


def _make_subjects() -> None:
    books: list[str] = []
    for _, row in itertools.islice(read_tsv(FLAGS.sources), 1, None):
        books += [row[0].rpartition("/")[2]] * int(row[5])
    found: dict[str, dict[str, list[str]]] = {}
    number, before = -1, ""
    for line in read_lines(FLAGS.text):
        number += bool(line.strip() and not before.strip())
        before = line
        if books[number].startswith(_PREFIX) and 120 <= len(line.strip()) <= 250:
            name = re.sub(f"{_PREFIX}|introduction-|principles-|-bundle", "", books[number])
            splits = found.setdefault(name, {split: [] for split in _SIZES})
            splits[{0: "test", 1: "dev"}.get(number % _CHAPTERS, "train")].append(line.strip())
    weights, rng = {name: len(x["train"]) for name, x in found.items()}, random.Random(0)
    for split, size in _SIZES.items():
        paragraphs = {name: splits[split] for name, splits in found.items()}
        _write(split, ["text", "subjects"], subjects(paragraphs, weights, size, rng))


def _measure() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    texts, names = {}, {}
    for split in _SIZES:
        path = os.path.join(FLAGS.data_dir, f"{split}.csv")
        with open(path, newline="", encoding="utf-8") as file:
            rows = [*csv.reader(file)][1:]
        texts[split], names[split] = zip(*((text, {*labels.split("|")}) for text, labels in rows))
    labels = sorted(set().union(*names["train"]))
    has = {
        split: np.array([[x in own for x in labels] for own in rows])
        for split, rows in names.items()
    }
    frequent = np.argsort(-has["train"].sum(axis=0))[:2]
    same = np.zeros_like(has["test"])
    same[:, frequent] = True
    _show("always the two most frequent", multi_label_metrics(same * 1.0, same, has["test"]))
    for what, options in (
        ("words", {}),
        ("words and pairs", {"ngram_range": (1, 2)}),
        ("2 to 5 letters", {"analyzer": "char_wb", "ngram_range": (2, 5)}),
    ):
        vectors = TfidfVectorizer(sublinear_tf=True, **options)
        inputs = {"train": vectors.fit_transform(texts["train"])}
        model = OneVsRestClassifier(LogisticRegression(C=10, max_iter=1000))
        model.fit(inputs["train"], has["train"])
        dev, test = (model.predict_proba(vectors.transform(texts[x])) for x in ("dev", "test"))
        chosen = test > best_thresholds(dev, has["dev"])
        _show(what, multi_label_metrics(test, chosen, has["test"]))


def _show(name: str, metrics: Mapping[str, float]) -> None:
    columns = ("micro_f1", "macro_f1", "mean_average_precision")
    print(f"{name:30}", *(f"{column} {metrics[column]:.3f}" for column in columns))


def _define_ends() -> None:
    define_path("text", None, "Books, one sentence a line.", required=True)
    define_path("glue_dir", None, "Folder with SST-2.", required=True)
    define_path("output_dir", None, "Folder for the tables.", required=True)


def _define_subjects() -> None:
    define_path("text", None, "One paragraph a line, blank lines between chapters.", required=True)
    define_path("sources", None, "Table with each book's number of chapters.", required=True)
    define_path("output_dir", None, "Folder for the tables.", required=True)


def _define_linear() -> None:
    define_path("data_dir", None, "Folder with the tables of subjects.", required=True)


if __name__ == "__main__":
    run_command(
        {
            "ends": (_make_ends, _define_ends),
            "subjects": (_make_subjects, _define_subjects),
            "linear": (_measure, _define_linear),
        },
        __doc__,
    )
