# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits raw text into one sentence a line, with a blank line between documents.

  python -m data_prep.split_sentences --input_file='books/*.txt' --output_file=sentences.txt.gz
  python -m data_prep.split_sentences --input_file=wiki.jsonl.gz --input_format=jsonl \\
    --output_file=sentences.txt.gz

Chinese and Japanese sentences end at their marks, whether or not a space follows: `split_cjk`. For
other text, tensorflow-text's sentence breaker proposes breaks at spaces; `sentence_ends_here`
rejects those that are wrong in English prose. Text is streamed, so memory does not grow with the
corpus.
"""

from __future__ import annotations

if __name__ == "__main__":  # Before the other imports, which take a while.
    from albert_tf.io.interrupts import end_on_interrupt

    end_on_interrupt()

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flag_modes import refuse_flags
from albert_tf.cli.path_flags import define_path, define_paths
from albert_tf.errors import AlbertError
from albert_tf.io import files, folders
from albert_tf.io.json_values import parse_json
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.io.text_files import atomic_text_writer, read_lines

INPUT_FORMATS = ("text", "jsonl", "files")
#: Longest JSON line: enough for a whole book, but not for a damaged file without line ends.
MAX_JSON_LINE_BYTES = 64 << 20
#: Approximate number of characters in a batch of paragraphs for the breaker.
_BATCH_CHARACTERS = 1 << 18

_CLOSERS = "\"'”’»)]}"
_OPENERS = "\"'“‘«([{-–—"

# Ideographs, kana and their iteration marks; CJK punctuation; and full-width characters.
_CJK = (
    "\u3001-\u301f\u3021-\u3030\u303b\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff"
)
_CJK_CLOSERS = "」』”’）〉》】〕］｝〗〙〛｠｣"
_AFTER_CJK = f"(?<=[{_CJK}])(?<![０-９])"
# The marks of Chinese and Japanese, or dots for an omission before a closing quote, with all marks
# and closers that follow; or ASCII marks and the full-width full stop between their characters.
_CJK_END = re.compile(
    rf"(?:[。｡！？]|{_AFTER_CJK}[…⋯]+(?=[」』”’]))[。｡！？.!?…⋯]*[{_CJK_CLOSERS})\]]*"
    rf"|{_AFTER_CJK}(?:[!?]+|[.．](?!\.))[{_CJK_CLOSERS})\]]*(?=[\s\"“‘{_CJK}])"
)
# No sentence starts with these; after a quotation, neither with the Japanese "と".
_CJK_CONTINUES = re.compile(r"\s*[，、；：。｡！？…⋯—―–,;:]|(?<=[」』])(?:と|って)")
# Lines are joined without a space between these; the quotes, dots and dashes are Latin's too.
_CJK_LINE_END = re.compile(f"[{_CJK}][“”‘’…⋯—]*$")
_CJK_LINE_START = re.compile(f"[“”‘’…⋯—]*[{_CJK}]")
_LINE_CLOSERS = _CLOSERS + _CJK_CLOSERS
_LINE_END_MARKS = (".", "!", "?", "。", "！", "？")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations before a name; they never end a sentence.
_TITLES = _words("""
    mr mrs ms messrs mme mlle dr prof st ste rev hon capt col gen lt sgt maj adm cmdr gov pres sen
    rep supt vs viz cf
""")
# Abbreviations before a number.
_REFERENCES = _words("""
    no nos vol vols p pp fig figs chap ch sec sect art ver v bk ps psa gen ex exod lev num deut
    josh judg sam kgs chron neh prov eccl isa jer ezek dan hos mic hab zech mal matt mk lk jn rom
    cor gal eph phil col thess tim tit heb jas pet rev
""")
# Words that usually start a sentence rather than continue it after "U.S." or an initial.
_STARTERS = _words("""
    a after all an and as at but by for from he her his how i if in it its my no not now on or our
    she so that the their then there these they this those to we what when where which who why
    with yes you your
""")
# JSON can escape characters that text files must not contain: NUL and lone surrogates.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_INITIALS = re.compile(r"(?:^|[\s\W])(?:[^\W\d_]\.)*[^\W\d_]\.$")
_LAST_WORD = re.compile(rf"([^\W{_CJK}]+)\.$")
_FIRST_WORD = re.compile(r"\w+")
_ENUMERATOR = re.compile(r"\W*(?:\d+|[ivxlcIVXLC]+|[A-Za-z])[.)]")


def sentence_ends_here(before: str, after: str) -> bool:
    """Returns whether a sentence ends at a proposed break.

    It does not if the text continues in lower case ('"Why?" he asked', "D.C. in 1990"), after a
    title ("Mr. Smith"), between an abbreviation and its number ("Fig. 3", "Psa. 63:8"), after
    initials ("J. R. R. Tolkien", "U.S. Senate") unless the next word usually starts a sentence,
    and after the number of a list item ("2. Salt").

    Args:
      before: the sentence so far, without surrounding white space.
      after: the text after the break, without surrounding white space.
    """
    word = after.lstrip(_OPENERS)
    if not any(c.isalnum() for c in before) or not word or word[0].islower():
        return False
    if _ENUMERATOR.fullmatch(before):
        return False
    last = _LAST_WORD.search(before)
    if last is None:
        return True
    abbreviation = last.group(1).lower()
    if abbreviation in _TITLES or (abbreviation in _REFERENCES and word[0].isdigit()):
        return False
    # A syllable or ideograph, which has no upper case, is not an initial.
    if (
        _INITIALS.search(before)
        and before[-2].isupper() | before[-2].islower()
        and after[0].isalnum()
    ):
        return _FIRST_WORD.match(word).group().lower() in _STARTERS
    return True


def split_cjk(paragraph: str) -> list[str]:
    """Cuts a paragraph after the ends of Chinese and Japanese sentences.

    A sentence ends at 。！？, at ASCII marks or a full-width full stop between characters of these
    scripts, and at dots for an omission before a closing quote. Closing quotes and brackets belong
    to it. It does not end if a comma, colon or dash follows, nor before the Japanese "と" after a
    quotation.

    Args:
      paragraph: text of any script; sentences of other scripts are not cut.

    Returns:
      Parts, white space included, that make up the paragraph.
    """
    parts: list[str] = []
    begin = counted = quotes = 0
    for match in _CJK_END.finditer(paragraph):
        end = match.end()
        quotes += paragraph.count('"', counted, end)
        counted = end
        # An ASCII quotation mark closes if it is an even one.
        if quotes % 2 and paragraph.startswith('"', end):
            end += 1
        if _CJK_CONTINUES.match(paragraph, end):
            continue
        if any(character.isalnum() for character in paragraph[begin:end]):
            parts.append(paragraph[begin:end])
            begin = end
    return [*parts, paragraph[begin:]]


def merge_fragments(fragments: list[str]) -> list[str]:
    """Merges the breaker's fragments of one paragraph into sentences.

    Args:
      fragments: the paragraph, white space included, cut at all proposed breaks.
    """
    sentences: list[str] = []
    current = ""
    for fragment in fragments:
        # A quotation mark directly after a full stop belongs to the sentence before it.
        touches = current and not current[-1].isspace()
        closers = len(fragment) - len(fragment.lstrip(_CLOSERS)) if touches else 0
        current += fragment[:closers]
        rest = fragment[closers:]
        gap = current[-1:].isspace() or rest[:1].isspace()
        if current and gap and rest and sentence_ends_here(current.strip(), rest.strip()):
            sentences.append(current.strip())
            current = rest
        else:
            current += rest
    if current.strip():
        sentences.append(current.strip())
    return sentences


class SentenceSplitter:
    """Splits paragraphs with `split_cjk`, StateBasedSentenceBreaker and `merge_fragments`."""

    def __init__(self) -> None:
        import tensorflow as tf
        import tensorflow_text

        breaker = tensorflow_text.StateBasedSentenceBreaker()

        # A graph, because each eager call of the breaker leaks some memory.
        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def fragment_starts(paragraphs: tf.Tensor) -> tf.RaggedTensor:
            _, starts, _ = breaker.break_sentences_with_offsets(paragraphs)
            return starts

        self._fragment_starts = fragment_starts

    def split(self, paragraphs: list[str]) -> list[list[str]]:
        """Returns the sentences of each paragraph."""
        parts = [split_cjk(paragraph) for paragraph in paragraphs]
        encoded = [part.encode("utf-8") for part in itertools.chain.from_iterable(parts)]
        sentences = []
        for data, cuts in zip(encoded, self._fragment_starts(encoded).to_list()):
            # The breaker may cut U+3000 after a full stop in the middle of its bytes.
            bounds = [0, *(cut for cut in cuts[1:] if data[cut] & 0xC0 != 0x80), len(data)]
            fragments = [data[a:b].decode("utf-8") for a, b in zip(bounds, bounds[1:])]
            sentences.append(merge_fragments(fragments))
        of_parts = iter(sentences)
        return [
            [sentence for _ in range(len(of_paragraph)) for sentence in next(of_parts)]
            for of_paragraph in parts
        ]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the input is divided into documents and paragraphs.

    Attributes:
      input_format: "text": documents are separated by blank lines; "jsonl": one document a line;
        "files": one document a file.
      text_field: the JSON field of a document's text.
      document_blank_lines: for "text": the number of blank lines, or more, that end a document;
        fewer end a paragraph.
      join_lines: whether a paragraph may have several lines; otherwise each line is a paragraph.
    """

    input_format: str = "text"
    text_field: str = "text"
    document_blank_lines: int = 2
    join_lines: bool = True


def read_paragraphs(
    path: str, layout: Layout, on_read: Callable[[int], None] | None = None
) -> Iterator[str | None]:
    """Yields the paragraphs of a file, and None after each document.

    Raises:
      AlbertError: see read_lines; or a JSON line is not an object with the text field.
    """
    if layout.input_format == "jsonl":
        lines = read_lines(path, max_line_bytes=MAX_JSON_LINE_BYTES, on_read=on_read)
        for number, line in enumerate(lines, start=1):
            if line.strip():
                text = _json_text(line, layout.text_field, f"{path}:{number}")
                yield from _paragraphs(text.splitlines(), layout.join_lines, None)
                yield None
        return
    document_blank_lines = layout.document_blank_lines if layout.input_format == "text" else None
    yield from _paragraphs(
        read_lines(path, on_read=on_read), layout.join_lines, document_blank_lines
    )
    yield None


def _json_text(line: str, field: str, where: str) -> str:
    value = parse_json(line, f"{where}: the line")
    if not isinstance(value, dict) or not isinstance(value.get(field), str):
        raise AlbertError(f"{where}: no text in the field {field!r}; set `text_field`.")
    if bad := _NOT_TEXT.search(value[field]):
        raise AlbertError(
            f"{where}: the text contains {bad.group()!r}, which cannot be written to a text file; "
            "remove it."
        )
    return value[field]


def _paragraphs(
    lines: Iterable[str], join_lines: bool, document_blank_lines: int | None
) -> Iterator[str | None]:
    """Yields paragraphs and, if `document_blank_lines` is set, None at the end of documents.

    Long text without blank lines is cut at lines that end with a sentence.
    """
    pending: list[str] = []
    size = blank_lines = 0
    for line in lines:
        line = " ".join(line.split())
        if line:
            blank_lines = 0
            pending.append(line)
            size += len(line)
            ends = line.rstrip(_LINE_CLOSERS).endswith(_LINE_END_MARKS)
            may_cut = size >= _BATCH_CHARACTERS and ends
            if join_lines and not may_cut and size < 4 * _BATCH_CHARACTERS:
                continue
        else:
            blank_lines += 1
        if pending:
            yield _join_lines(pending)
            pending, size = [], 0
        if not line and blank_lines == document_blank_lines:
            yield None
    if pending:
        yield _join_lines(pending)


def _join_lines(lines: list[str]) -> str:
    """Joins lines with a space, which Chinese and Japanese text does not have between words."""
    parts = lines[:1]
    for before, after in zip(lines, lines[1:]):
        # A few characters at the end suffice, and a search through a long line would be slow.
        joined = _CJK_LINE_END.search(before[-8:]) and _CJK_LINE_START.match(after)
        parts += ["" if joined else " ", after]
    return "".join(parts)


def _batches(paragraphs: Iterable[str | None]) -> Iterator[list[str | None]]:
    """Yields batches of about _BATCH_CHARACTERS characters, for few calls of the breaker."""
    batch: list[str | None] = []
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
    """Counts of the text written."""

    documents: int = 0
    sentences: int = 0
    characters: int = 0


def split_sentences(
    input_files: list[str], output_file: str, layout: Layout, overwrite: bool = False
) -> SplitCounts:
    """Writes the sentences of `input_files`, one a line, with a blank line between documents.

    Args:
      input_files: UTF-8 files, plain or .gz, .bz2, .xz. The end of a file ends a document.
      output_file: either complete or absent; compressed according to its suffix.
      layout: how the input is divided into documents and paragraphs.
      overwrite: replace an existing output file.

    Raises:
      AlbertError: bad input (see read_paragraphs), no sentence at all, or an output file that
        exists already, is one of the input files or is being written by another process.
    """
    with files.claimed_output(output_file, input_files, overwrite):
        return _split(input_files, output_file, layout)


def _split(input_files: list[str], output_file: str, layout: Layout) -> SplitCounts:
    splitter = SentenceSplitter()
    counts = SplitCounts()
    document_open = False
    progress = Progress("splitting", total_bytes(input_files))
    with progress, atomic_text_writer(output_file) as write:
        paragraphs = (
            paragraph
            for path in input_files
            for paragraph in read_paragraphs(path, layout, progress.update)
        )
        for batch in _batches(paragraphs):
            split = iter(splitter.split([paragraph for paragraph in batch if paragraph]))
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
        if not counts.sentences:
            raise AlbertError(f"No sentence was found in {', '.join(input_files[:3])}.")
    return counts


def list_files(patterns: str) -> list[str]:
    """Returns the files that match a comma list of globs, with all files below matching folders.

    Raises:
      AlbertError: a pattern matches nothing, or a folder is empty.
    """
    paths: list[str] = []
    for path in files.expand_globs(patterns):
        if not files.isdir(path):
            paths.append(path)
            continue
        names = folders.names_below(path)
        if not names:
            raise AlbertError(f"The folder {path} holds no files.")
        paths += [os.path.join(path, name) for name in names]
    return paths


def define_flags() -> None:
    """Defines the flags."""
    define_paths(
        "input_file",
        None,
        "Raw text: a comma list of paths, globs and folders, which stand for all files below them. "
        "UTF-8, plain or compressed (.gz, .bz2, .xz). The end of a file ends a document.",
        required=True,
        check=files.check_pattern,
    )
    define_path(
        "output_file",
        None,
        "Output file, one sentence a line, with a blank line between documents; compressed if the "
        "name ends in .gz, .bz2 or .xz.",
        required=True,
        check=lambda path: files.check_output_file(path, flags.FLAGS.overwrite),
    )
    flags.DEFINE_enum(
        "input_format",
        "text",
        INPUT_FORMATS,
        "text: documents separated by blank lines (see --document_blank_lines); jsonl: one JSON "
        "object a line, each with a document; files: each file is one document.",
    )
    flags.DEFINE_string("text_field", "text", "The field of a JSON line with the document's text.")
    flags.DEFINE_integer(
        "document_blank_lines",
        2,
        "With --input_format=text: number of consecutive blank lines, or more, that separate "
        "documents; fewer separate paragraphs. 1 makes every paragraph a document.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "join_lines",
        True,
        "Join the lines of a paragraph, as in books with wrapped lines. Turn off for text with one "
        "paragraph a line.",
    )
    script.define_overwrite_flag()


def _check_flags() -> None:
    flag = flags.FLAGS
    if flag.input_format != "jsonl":
        refuse_flags(["text_field"], "it requires --input_format=jsonl.")
    if flag.input_format != "text":
        refuse_flags(["document_blank_lines"], "it requires --input_format=text.")


def _main() -> None:
    flag = flags.FLAGS
    layout = Layout(flag.input_format, flag.text_field, flag.document_blank_lines, flag.join_lines)
    input_files = list_files(flag.input_file)
    counts = split_sentences(input_files, flag.output_file, layout, flag.overwrite)
    print(
        f"{flag.output_file}: {counts.sentences} sentences in {counts.documents} documents, "
        f"{counts.characters / counts.sentences:.0f} characters per sentence, from "
        f"{len(input_files)} files."
    )


main = functools.partial(script.run, _main, define_flags, check_flags=_check_flags)

if __name__ == "__main__":
    main()
