# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the ends of sentences.

Chinese and Japanese sentences end at their marks, whether or not a space follows: `_split_cjk`. For
other text, tensorflow-text's sentence breaker proposes breaks at spaces; `sentence_ends_here`
rejects those that are wrong in English prose.
"""

from __future__ import annotations

import re

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
_INITIALS = re.compile(r"(?:^|[\s\W])(?:[^\W\d_]\.)*[^\W\d_]\.$")
_LAST_WORD = re.compile(rf"([^\W{_CJK}]+)\.$")
_FIRST_WORD = re.compile(r"\w+")
#: Characters before a break that are searched for abbreviations, which are shorter. In whole words
#: of any length, the search would take a time that grows with the square of the length.
_END = 64
_ENUMERATOR = re.compile(r"\W*(?:\d+|[ivxlcIVXLC]+|[A-Za-z])[.)]")


def sentence_ends_here(before: str, after: str, lower_cased: bool = False) -> bool:
    """Returns whether a sentence ends at a proposed break.

    It does not if the text continues in lower case ('"Why?" he asked', "D.C. in 1990"), after a
    title ("Mr. Smith"), between an abbreviation and its number ("Fig. 3", "Psa. 63:8"), after
    initials ("J. R. R. Tolkien", "U.S. Senate") unless the next word usually starts a sentence,
    and after the number of a list item ("2. Salt"). Both texts have no surrounding white space.

    In lower-cased text, as BookCorpus is distributed, a sentence may begin in lower case, but not
    after a closing quote ("why?" he asked; also '', as in tokenized text) or initials (d.c. in
    1990).
    """
    word = after.lstrip(_OPENERS)
    if not any(c.isalnum() for c in before) or not word:
        return False
    if lower_cased:
        continues = after.startswith("''") or before[-1] in _CLOSERS
    else:
        continues = word[0].islower()
    if continues or _ENUMERATOR.fullmatch(before):
        return False
    end = before[-_END:]
    last = _LAST_WORD.search(end)
    if last is None:
        return True
    abbreviation = last.group(1).lower()
    if abbreviation in _TITLES or (abbreviation in _REFERENCES and word[0].isdigit()):
        return False
    # A syllable or ideograph, which has no upper case, is not an initial.
    if (
        _INITIALS.search(end)
        and (before[-2].isupper() or before[-2].islower())
        and after[0].isalnum()
    ):
        return not lower_cased and _FIRST_WORD.match(word).group().lower() in _STARTERS
    return True


def _split_cjk(paragraph: str) -> list[str]:
    """Cuts a paragraph after the ends of Chinese and Japanese sentences.

    A sentence ends at 。！？, at ASCII marks or a full-width full stop between characters of these
    scripts, and at dots for an omission before a closing quote. Closing quotes and brackets belong
    to it. It does not end if a comma, colon or dash follows, nor before the Japanese "と" after a
    quotation. Sentences of other scripts are not cut. The parts keep their white space.
    """
    parts = []
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


def _merge_fragments(fragments: list[str], lower_cased: bool) -> list[str]:
    """Merges a paragraph, white space included, cut at all proposed breaks, into sentences."""
    sentences = []
    current = ""
    for fragment in fragments:
        # A quotation mark directly after a full stop belongs to the sentence before it.
        touches = current and not current[-1].isspace()
        closers = len(fragment) - len(fragment.lstrip(_CLOSERS)) if touches else 0
        current += fragment[:closers]
        rest, before = fragment[closers:], current.strip()
        gap = current[-1:].isspace() or rest[:1].isspace()
        if gap and sentence_ends_here(before, rest.strip(), lower_cased):
            sentences.append(before)
            current = ""
        current += rest
    if current.strip():
        sentences.append(current.strip())
    return sentences


def ends_sentence(line: str) -> bool:
    """Returns whether a line ends with a mark that ends sentences, and closing quotes after it."""
    return line.rstrip(_LINE_CLOSERS).endswith(_LINE_END_MARKS)


def unwrap(lines: list[str]) -> str:
    """Joins lines with a space, which Chinese and Japanese text does not have between words."""
    parts = lines[:1]
    for before, after in zip(lines, lines[1:]):
        # A few characters at the end suffice, and a search through a long line would be slow.
        joined = _CJK_LINE_END.search(before[-8:]) and _CJK_LINE_START.match(after)
        parts += ["" if joined else " ", after]
    return "".join(parts)


class SentenceSplitter:
    """Splits paragraphs with `_split_cjk`, StateBasedSentenceBreaker and `_merge_fragments`."""

    def __init__(self) -> None:
        import tensorflow as tf
        import tensorflow_text

        breaker = tensorflow_text.StateBasedSentenceBreaker()

        # A graph, because each eager call of the breaker leaks some memory.
        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def fragment_starts(paragraphs) -> tf.RaggedTensor:
            _, starts, _ = breaker.break_sentences_with_offsets(paragraphs)
            return starts

        self._fragment_starts = fragment_starts

    def split(self, paragraphs: list[str]) -> list[list[str]]:
        """Returns the sentences of each paragraph; one without capitals counts as lower-cased."""
        parts = [
            (number, part.encode())
            for number, paragraph in enumerate(paragraphs)
            for part in _split_cjk(paragraph)
        ]
        starts = self._fragment_starts([data for _, data in parts]).to_list()
        sentences = [[] for _ in paragraphs]
        for (number, data), cuts in zip(parts, starts):
            # The breaker may cut U+3000 after a full stop in the middle of its bytes.
            bounds = [0, *(cut for cut in cuts[1:] if data[cut] & 0xC0 != 0x80), len(data)]
            fragments = [data[a:b].decode() for a, b in zip(bounds, bounds[1:])]
            sentences[number] += _merge_fragments(fragments, paragraphs[number].islower())
        return sentences
