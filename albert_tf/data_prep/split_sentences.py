# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits raw text into one sentence per line, with a blank line between
documents.

  albert split-sentences --input_file='books/*.txt' \\
    --output_file=sentences.txt.gz
  albert split-sentences --input_file=wiki.jsonl.gz \\
    --input_format=jsonl --output_file=sentences.txt.gz

See `albert_tf.data_prep.sentence_splitter` for where sentences end. Text is
streamed, so memory does not grow with the corpus.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from albert_tf.cli import script
from albert_tf.cli.flags import (
    FLAGS,
    define_overwrite_flag,
    define_path,
    define_settings,
    given_settings,
    refuse_flags,
)
from albert_tf.data_prep.sentence_splitter import SentenceSplitter, ends_sentence, unwrap
from albert_tf.errors import AlbertError
from albert_tf.io import files, folders
from albert_tf.io.log import log
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.io.text_files import new_text_file, read_lines
from albert_tf.io.text_tables import data_rows, json_rows, library_rows
from albert_tf.settings import Settings, setting

TEXT, JSONL, PARQUET = INPUT_FORMATS = ("text", "jsonl", "parquet")
#: Longest JSON line: enough for a whole book, but not for a damaged file without line ends.
MAX_JSON_LINE_BYTES = 64 << 20
#: Approximate number of characters in a batch of paragraphs for the breaker.
_BATCH_CHARACTERS = 1 << 18
# JSON can escape characters that text files must not contain: NUL and lone surrogates.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Layout(Settings):
    """How the input is divided into documents and paragraphs."""

    input_format: str = setting(
        TEXT,
        "text: documents are separated by blank lines; jsonl: one JSON object per line, each with "
        "a document under the key text; parquet: a document in each row of the column text.",
        choices=INPUT_FORMATS,
    )
    document_blank_lines: int = setting(
        2,
        "In text: number of consecutive blank lines, or more, that separate documents; fewer "
        "separate paragraphs. 1 makes every paragraph a document, 0 every file.",
    )
    join_lines: bool = setting(
        True,
        "Join the lines of a paragraph, as in books with wrapped lines. Turn off for text with one "
        "paragraph per line.",
    )


def _read_paragraphs(
    source: str | Iterable[Any], layout: Layout, on_read: Callable[[int], None]
) -> Iterator[str | None]:
    """Yields the paragraphs of a file or a data set, and None after each document."""
    if isinstance(source, str) and layout.input_format == TEXT:
        lines = read_lines(source, on_read=on_read)
        yield from _paragraphs(lines, layout.join_lines, layout.document_blank_lines)
        yield None
        return
    if not isinstance(source, str):
        rows = data_rows(source, "input")
    elif layout.input_format == PARQUET:
        rows = data_rows(library_rows(source), source)
    else:
        rows = json_rows(source, max_line_bytes=MAX_JSON_LINE_BYTES, on_read=on_read)
    for where, row in rows:
        text = row.get("text")
        if not isinstance(text, str):
            raise AlbertError(f"{where}: there is no text under the key 'text'.")
        if bad := _NOT_TEXT.search(text):
            raise AlbertError(
                f"{where}: the text contains {bad.group()!r}, which cannot be written to a text "
                "file; remove it."
            )
        yield from _paragraphs(text.splitlines(), layout.join_lines)
        yield None


def _paragraphs(
    lines: Iterable[str], join_lines: bool, document_blank_lines: int = 0
) -> Iterator[str | None]:
    """Yields paragraphs and, if `document_blank_lines` is not 0, None at the end of documents.

    Long text without blank lines is cut at lines that end with a sentence.
    """
    pending = []
    size = blank_lines = 0
    for line in lines:
        line = " ".join(line.split())
        if line:
            blank_lines = 0
            pending.append(line)
            size += len(line)
            may_cut = size >= _BATCH_CHARACTERS and ends_sentence(line)
            if join_lines and not may_cut and size < 4 * _BATCH_CHARACTERS:
                continue
        else:
            blank_lines += 1
        if pending:
            yield unwrap(pending)
            pending, size = [], 0
        if not line and blank_lines == document_blank_lines:
            yield None
    if pending:
        yield unwrap(pending)


def _batches(paragraphs: Iterable[str | None]) -> Iterator[list[str | None]]:
    """Yields batches of about _BATCH_CHARACTERS characters, for few calls of the breaker."""
    batch = []
    size = 0
    for paragraph in paragraphs:
        batch.append(paragraph)
        size += len(paragraph or "")
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclasses.dataclass
class SplitCounts:
    """Counts of the text written.

    `lower_cased` are sentences of paragraphs of several sentences, but without a capital letter.
    """

    documents: int = 0
    sentences: int = 0
    characters: int = 0
    lower_cased: int = 0


def split_sentences(
    texts: list[str] | Iterable[Mapping[str, Any]],
    output_file: str,
    layout: Layout,
    overwrite: bool = False,
) -> SplitCounts:
    """Writes the sentences of texts, one per line, with a blank line between documents.

    Args:
      texts: a list of UTF-8 files, plain or .gz, .bz2, .xz, or of .parquet files; the end of a file
        ends a document. Or a data set with a document in each row of the column `text`, such as a
        `datasets.Dataset`, which may be a stream.
      output_file: either complete or absent; compressed according to its suffix.
      layout: how the input is divided into documents and paragraphs.
      overwrite: replace an existing output file.

    Raises:
      AlbertError: bad input (see read_lines), a JSON line that is not an object with the text, no
        sentence at all, or an output file that exists already or is one of the input files.
    """
    splitter = SentenceSplitter()
    counts = SplitCounts()
    document_open = False
    are_files = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    input_files, sources = (texts, texts) if are_files else ([], [texts])
    sized = are_files and layout.input_format != PARQUET
    progress = Progress("splitting", total_bytes(input_files) if sized else None)
    with progress, new_text_file(output_file, input_files, overwrite) as write:
        paragraphs = (
            paragraph
            for source in sources
            for paragraph in _read_paragraphs(source, layout, progress.update)
        )
        for batch in _batches(paragraphs):
            split = iter(splitter.split([*filter(None, batch)]))
            for paragraph in batch:
                if paragraph is None:
                    document_open = False
                    continue
                sentences = next(split)
                if sentences and not document_open:
                    if counts.documents:
                        write("\n")
                    counts.documents += 1
                    document_open = True
                write("".join(f"{sentence}\n" for sentence in sentences))
                counts.sentences += len(sentences)
                counts.characters += sum(map(len, sentences))
                if len(sentences) > 1 and paragraph.islower():
                    counts.lower_cased += len(sentences)
        if not counts.sentences:
            raise AlbertError(
                f"No sentence was found in {', '.join(input_files[:3]) or 'the data set'}."
            )
    return counts


def list_files(patterns: str) -> list[str]:
    """Returns the files that match a comma list of globs, with all files below matching folders.

    Raises:
      AlbertError: a pattern matches nothing, or a folder is empty.
    """
    paths = []
    for path in files.expand_globs(patterns):
        if not files.isdir(path):
            paths.append(path)
        elif names := folders.names_below(path):
            paths += [os.path.join(path, name) for name in names]
        else:
            raise AlbertError(f"The folder {path} holds no files.")
    return list(dict.fromkeys(paths))


def define_flags() -> None:
    """Defines the flags."""
    define_path(
        "input_file",
        None,
        "Raw text: a comma list of paths, globs and folders, which stand for all files below them. "
        "UTF-8, plain or compressed (.gz, .bz2, .xz). The end of a file ends a document.",
        required=True,
    )
    define_path(
        "output_file",
        None,
        "Output file, one sentence per line, with a blank line between documents; compressed if "
        "the name ends in .gz, .bz2 or .xz.",
        required=True,
    )
    define_settings(Layout)
    define_overwrite_flag()


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    layout = Layout(**given_settings(Layout))
    if layout.input_format != TEXT:
        refuse_flags(["document_blank_lines"], "it requires --input_format=text.")
    input_files = list_files(FLAGS.input_file)
    counts = split_sentences(input_files, FLAGS.output_file, layout, FLAGS.overwrite)
    log.info(
        f"{FLAGS.output_file}: {counts.sentences} sentences in {counts.documents} documents, "
        f"{counts.characters / counts.sentences:.0f} characters per sentence, from "
        f"{len(input_files)} files."
    )
    if counts.lower_cased:
        log.info(
            f"{counts.lower_cased} of them are in paragraphs without a capital letter, where "
            "sentences may begin with a lower-case one."
        )
