# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a tagging task; reads texts with tags, from columns or rows; finds entities."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io.files import valid_text
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.text_files import read_lines
from albert_tf.io.text_tables import Rows, read_rows
from albert_tf.settings import Settings, setting
from albert_tf.tokenization.tokenizer import checked_texts

OUTSIDE = "O"
_OF_ENTITIES = re.compile(f"{OUTSIDE}|[BIES]-.+")


@dataclasses.dataclass(frozen=True)
class TaggingSpec(Settings):
    """Settings of a tagging task, saved with the model.

    Attributes:
      tags: those of the training words, in the order of the model's outputs.
      max_seq_length: see its help.

    Raises:
      AlbertError: the length is too small.
    """

    tags: tuple[str, ...]
    max_seq_length: int = setting(512, "Maximum length of a window in tokens.", minimum=3)

    @property
    def doc_stride(self) -> int:
        """Tokens between the starts of consecutive windows of a long text."""
        return self.max_seq_length // 2

    def kind(self, tag: str) -> tuple[str, str]:
        """Returns a tag's prefix and label, as ("B", "PER") for B-PER.

        The prefix is one of B, I, E, S and O, which has no label. Tags without prefixes, such as
        parts of speech, are like S: each word is an entity of its own.
        """
        if tag == OUTSIDE:
            return OUTSIDE, ""
        return (tag[0], tag[2:]) if self._has_prefixes else ("S", tag)

    @functools.cached_property
    def _has_prefixes(self) -> bool:
        return all(map(_OF_ENTITIES.fullmatch, self.tags))

    @property
    def strict_form(self) -> str:
        """The prefixes of an entity that is well-formed, as a regular expression."""
        ends = {self.kind(tag)[0] for tag in self.tags} & {"E", "S"}
        return "S|BI*E" if ends else "BI*"


@dataclasses.dataclass(frozen=True)
class TaggedText:
    """A text and its words.

    Attributes:
      text: the text; given words are joined by spaces.
      words: the characters [start, end) of each word.
      tags: of the words; None if they are unknown.
      where: its place, for errors.
    """

    text: str
    words: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None
    where: str


class Entity(NamedTuple):
    """An entity in a text; of tags without prefixes, a word.

    `start` and `end` are its characters [start, end); `score` is the mean probability of the tags
    of its words.
    """

    text: str
    label: str
    start: int
    end: int
    score: float


class Tagged(NamedTuple):
    """The words of a text, their tags, and the entities that these stand for, in their order."""

    words: list[str]
    tags: list[str]
    entities: list[Entity]


def entities(tags: Sequence[str], spec: TaggingSpec, form: str = ".+") -> set[tuple[int, int, str]]:
    """Returns the entities that the tags of a text's words stand for, as conlleval finds them.

    An entity begins at B or S, after E or S, and where the label changes or O precedes. So it may
    begin with I; with `spec.strict_form`, only those that are well-formed are returned, as by
    seqeval in its strict mode.

    Returns:
      The words [first, end) of each, and its label.
    """
    found = []
    before = OUTSIDE, ""
    for number, kind in enumerate(map(spec.kind, tags)):
        prefix, label = kind
        if prefix != OUTSIDE:
            if prefix in "BS" or before[0] in "ES" or before[1] != label:
                found.append([number, number, label, ""])
            found[-1][1] = number + 1
            found[-1][3] += prefix
        before = kind
    return {tuple(entity) for *entity, prefixes in found if re.fullmatch(form, prefixes)}


def read_tagged(data: Any, name: str = "") -> list[TaggedText]:
    """Reads texts from a file with columns, or rows from a table or memory; see `tagged_texts`.

    In files like those of CoNLL-2003, a line is a word with its tag in the last column, and an
    empty line ends a sentence. Columns are separated by tabs or, in lines without tabs, by spaces.
    Lines with -DOCSTART- are skipped. If no word of a sentence has a second column, its tags are
    unknown. For rows and `name` see `read_rows`; tables of rows are not .tsv.

    Raises:
      AlbertError: as `read_rows` and `tagged_texts`.
    """
    return tagged_texts(read_rows(data, name, dict.fromkeys((None, "tsv"), _sentences)))


def _sentences(path: str) -> Rows:
    """Yields the sentences of a file with columns as rows."""
    words = []
    for number, line in enumerate(itertools.chain(read_lines(path), [""]), start=1):
        columns = line.strip().split("\t" if "\t" in line.strip() else None)
        if columns and columns[0] != "-DOCSTART-":
            words.append(columns)
        elif words:
            tags = [columns[-1] if len(columns) > 1 else None for columns in words]
            row = {"tokens": [columns[0] for columns in words]}
            yield f"{path}:{number - len(words)}", {**row, "tags": tags if any(tags) else None}
            words = []


def tagged_texts(rows: Rows) -> list[TaggedText]:
    """Converts rows to texts with words.

    A row has `tokens`, a list of words, and `tags`, a list of their tags; or `text` and `entities`,
    a list of objects with `start` and `end`, characters of the text, and `label`. Without tags or
    entities, these are unknown. A text becomes words by `words.split_words`, and a word is cut
    where an entity begins or ends inside of it. Entities become tags in IOB2; so do tags in IOB1,
    where B begins an entity only after another one with its label.

    Raises:
      AlbertError: a row has neither words nor a text, or its tags or entities do not fit.
    """
    texts = []
    for where, row in rows:
        if row.get("tokens") is not None:
            texts.append(_of_words(row["tokens"], row.get("tags"), where))
        elif isinstance(row.get("text"), str):
            texts.append(_of_text(valid_text(row["text"]), row.get("entities"), where))
        else:
            raise AlbertError(f"{where}: there are no tokens and no text, but {joined(row)}.")
    return _from_iob1(texts)


def _of_words(words: Any, tags: Any, where: str) -> TaggedText:
    words = [*map(valid_text, checked_texts(words, f"tokens of {where}"))]
    if tags is not None:
        tags = tuple(checked_texts(tags, f"tags of {where}"))
        if len(tags) != len(words):
            raise AlbertError(f"{where}: there are {len(words)} words, but {len(tags)} tags.")
    ends = itertools.accumulate(len(word) + 1 for word in words)
    places = tuple((end - 1 - len(word), end - 1) for word, end in zip(words, ends))
    return TaggedText(" ".join(words), places, tags, where)


def _of_text(text: str, given: Any, where: str) -> TaggedText:
    # TensorFlow takes seconds to import; it splits texts here as in a SavedModel.
    from albert_tf.tasks.tagging.words import split_words

    places, tags = [], []
    try:
        found = sorted((x["start"], x["end"], x["label"]) for x in given or ())
        edges = [0, *(edge for *place, _ in found for edge in place), len(text)]
        words = split_words([text[start:end] for start, end in zip(edges, edges[1:])])
        fits = (
            edges == sorted(edges)
            and all(words[1::2])
            and all(isinstance(x[2], str) and x[2] for x in found)
        )
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise AlbertError(
            f"{where}: the entities must be objects with label, start and end, characters of the "
            f"text with a word or more, and must not overlap: {short_repr(given)}."
        )
    for number, (begin, inside) in enumerate(zip(edges, words)):
        label = found[number // 2][2] if number % 2 else ""
        places += [(begin + start, begin + end) for start, end in inside]
        tags += [f"{'I' if i else 'B'}-{label}" if label else OUTSIDE for i in range(len(inside))]
    return TaggedText(text, tuple(places), None if given is None else tuple(tags), where)


def tag_settings(texts: Sequence[TaggedText]) -> dict[str, tuple[str, ...]]:
    """Returns what training texts decide in a TaggingSpec: the tags, sorted."""
    return {"tags": tuple(sorted({tag for text in texts for tag in text.tags or ()}))}


def _from_iob1(texts: list[TaggedText]) -> list[TaggedText]:
    """Converts the tags of a data set to IOB2 if they are IOB1; see `tagged_texts`."""
    spec = TaggingSpec(**tag_settings(texts))
    converted = []
    for text in texts:
        tags, before = [], ""
        for tag in text.tags or ():
            prefix, label = spec.kind(tag)
            if prefix in "ES" or (prefix == "B" and label != before):
                return texts
            tags.append(f"B-{label}" if prefix == "I" and label != before else tag)
            before = label
        converted.append(text if text.tags is None else dataclasses.replace(text, tags=tuple(tags)))
    return converted
