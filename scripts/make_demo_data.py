# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes demo/data from a collection of public-domain books.

The collection is one text file (plain or .gz) with one sentence per line and a blank line between
chapters. Six books are cut out of it: the chapters to learn from, a few chapters that are kept
out of all training, and sentences labelled with their author. What is made is part of the
repository; this script is kept to show how:

    python scripts/make_demo_data.py books.txt.gz demo/data
"""

from __future__ import annotations

import dataclasses
import random
import re
import sys
import textwrap

from albert_tf.errors import AlbertError
from albert_tf.io.files import write_text
from albert_tf.io.text_files import read_lines

PARAGRAPH_CHARS = 500
LINE_CHARS = 78
HELD_OUT_CHARS = 40_000
TRAIN_SENTENCES = 60
DEV_SENTENCES = 80
SEED = 1


@dataclasses.dataclass(frozen=True)
class Book:
    """Where a book is in the collection.

    Attributes:
      author: the label, and the name of the file.
      opening: first words of the first chapter, by which it is found.
      train_chapters: chapters to learn from, counted from the opening one.
      held_out_chapters: chapters for evaluation only.
    """

    author: str
    opening: str
    train_chapters: range
    held_out_chapters: range


BOOKS = (
    Book("darwin", "When on board H.M.S.", range(6), range(8, 9)),
    Book("dickens", "My father's family name being Pirrip", range(18), range(18, 20)),
    Book("doyle", "Mr. Sherlock Holmes, who was usually very late", range(13), range(13, 15)),
    Book("smith", "The annual labour of every nation", range(11), range(13, 16)),
    Book("spinoza", "I. By that which is self--caused", range(12), range(16, 17)),
    Book("washington", "I was born a slave on a plantation", range(14), range(15, 17)),
)

# A capital inside a sentence is nearly always a name, and a name gives the book away.
_NAME = re.compile(r"[a-z,;:] [\"']?(?!I\b)[A-Z]")
_WHOLE_SENTENCE = re.compile(r"[\"']?[A-Z][^\t]*[.!?][\"']?")


def read_chapters(path: str) -> list[list[str]]:
    """Chapters of the collection, each a list of sentences."""
    chapters: list[list[str]] = [[]]
    for line in read_lines(path):
        sentence = line.replace("\ufeff", "").strip()
        if sentence:
            chapters[-1].append(sentence)
        elif chapters[-1]:
            chapters.append([])
    return chapters


def pick(chapters: list[list[str]], book: Book) -> tuple[list[list[str]], list[list[str]]]:
    """The book's chapters to learn from, and those kept out (cut to HELD_OUT_CHARS together).

    Raises:
      AlbertError: no chapter, or more than one, opens as the book should.
    """
    starts = [i for i, c in enumerate(chapters) if c and c[0].startswith(book.opening)]
    if len(starts) != 1:
        raise AlbertError(f"{len(starts)} chapters open with {book.opening!r}; one was expected.")
    held_out, room = [], HELD_OUT_CHARS
    for i in book.held_out_chapters:
        chapter = []
        for sentence in chapters[starts[0] + i]:
            room -= len(sentence)
            if room > 0:
                chapter.append(sentence)
        held_out += [chapter] if chapter else []
    return [chapters[starts[0] + i] for i in book.train_chapters], held_out


def running_text(chapters: list[list[str]]) -> str:
    """Chapters as in a book: a blank line between paragraphs, two between chapters."""
    texts = []
    for chapter in chapters:
        paragraphs = [""]
        for sentence in chapter:
            dialogue_turns = paragraphs[-1].endswith('"') and sentence.startswith('"')
            if len(paragraphs[-1]) > PARAGRAPH_CHARS or dialogue_turns:
                paragraphs.append("")
            paragraphs[-1] += f" {sentence}" if paragraphs[-1] else sentence
        wrapped = [textwrap.fill(p, LINE_CHARS, break_on_hyphens=False) for p in paragraphs]
        texts.append("\n\n".join(wrapped))
    return "\n\n\n".join(texts) + "\n"


def labelled_rows(books: dict[str, list[list[str]]], count: int, taken: set[str]) -> list[str]:
    """`count` rows `sentence<TAB>author` of each book, shuffled; none of them in `taken`."""
    rng = random.Random(SEED)
    rows = []
    for author, chapters in books.items():
        sentences = [
            s
            for s in dict.fromkeys(s for chapter in chapters for s in chapter)
            if 50 <= len(s) <= 250
            and _WHOLE_SENTENCE.fullmatch(s)
            and not _NAME.search(s)
            and s not in taken
        ]
        if len(sentences) < count:
            raise AlbertError(f"{author} has only {len(sentences)} sentences to label.")
        rows += [f"{s}\t{author}" for s in rng.sample(sentences, count)]
    rng.shuffle(rows)
    return rows


def main(collection: str, output_dir: str) -> None:
    """Writes books/{train,heldout}/<author>.txt and authors/{train,dev}.tsv."""
    chapters = read_chapters(collection)
    train, held_out = {}, {}
    for book in BOOKS:
        train[book.author], held_out[book.author] = pick(chapters, book)
        for name, part in (("train", train), ("heldout", held_out)):
            write_text(
                f"{output_dir}/books/{name}/{book.author}.txt", running_text(part[book.author])
            )
    seen = {s for part in train.values() for chapter in part for s in chapter}
    for name, part, count, taken in (
        ("train", train, TRAIN_SENTENCES, set()),
        ("dev", held_out, DEV_SENTENCES, seen),
    ):
        rows = labelled_rows(part, count, taken)
        write_text(
            f"{output_dir}/authors/{name}.tsv", "\n".join(["sentence\tauthor", *rows]) + "\n"
        )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except AlbertError as error:
        sys.exit(f"error: {error}")
