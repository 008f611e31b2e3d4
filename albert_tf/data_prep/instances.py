# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cuts documents into instances: chooses the sentences of segments A and B, and the label.

Source: google-research/albert create_pretraining_data.create_instances_from_document and
truncate_seq_pair; paper, section 3.1 (sentence order prediction). Instances are ranges of tokens,
not copies, so that all instances of a bucket fit into memory together.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections import Counter

import numpy as np

from albert_tf.data_prep.documents import Bucket
from albert_tf.data_prep.pretraining_options import NSP, SOP, PretrainingOptions

#: Attempts to draw a document other than the current one.
_TRIES = 10


def create_instances(
    bucket: Bucket,
    word_starts: np.ndarray,
    options: PretrainingOptions,
    rng: np.random.Generator,
) -> tuple[np.ndarray, Counter[str]]:
    """Cuts a bucket's documents into the n instances of one pass, and shuffles them.

    Only the bucket's own documents are cut, but unrelated segments come from all of them.
    `word_starts`, bool [vocab_size], says whether a piece starts a word.

    Returns:
      The instances, int32 [5, n]: start and end of segment A and of segment B in the bucket's
      tokens, and the label, 1 if the segments are unrelated (NSP). B is empty for the objective
      "none". For SOP, segments are in the order of the text; masking swaps them. And counts of
      dropped and truncated instances.
    """
    cutter = _Cutter(bucket, word_starts, options, rng)
    rows = cutter.nsp_pass() if options.sentence_objective == NSP else cutter.chunk_pass()
    *sentences, labels = rows.reshape(-1, 5).T
    segments = np.stack([bucket.sentence_bounds[column] for column in sentences])
    instances = np.concatenate([cutter.shortened(segments), [labels]]).astype(np.int32)
    return instances[:, rng.permutation(len(labels))], cutter.counts


@dataclasses.dataclass
class _Cutter:
    """Goes over a bucket's documents, and counts; a pass returns int32 [n, 5].

    These are the first sentence of each segment and the one after its last, and the label.
    """

    bucket: Bucket
    word_starts: np.ndarray
    options: PretrainingOptions
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.counts = Counter()
        # Lists: bisect and access to single elements are several times faster than with arrays.
        self._bounds = self.bucket.sentence_bounds.tolist()
        self._documents = self.bucket.document_bounds.tolist()

    def _targets(self) -> list[int]:
        """Draws the tokens per instance for each document."""
        longest = self.options.max_text_tokens
        shorter = self.rng.integers(2, longest, size=self.bucket.own_documents, endpoint=True)
        is_short = self.rng.random(self.bucket.own_documents) < self.options.short_seq_prob
        return np.where(is_short, shorter, longest).tolist()

    def _chunk_end(self, start: int, last: int, tokens: int) -> int:
        """Returns the end of the shortest run of sentences from `start` with enough `tokens`.

        If the sentences up to `last` have fewer tokens, returns `last`.
        """
        return bisect_left(self._bounds, self._bounds[start] + tokens, start + 1, last)

    def chunk_pass(self) -> np.ndarray:
        """Returns the instances of one pass for "sop" or "none"."""
        pairs = self.options.sentence_objective == SOP
        is_repeated = self.rng.random(self.bucket.own_documents) < self.options.repeat_prob
        chunks = []
        repeated = []
        for document, target in enumerate(self._targets()):
            if is_repeated[document]:
                repeated += self._fitting(document, target // 2, least=1)
            elif self.options.whole_sentences:
                chunks += self._fitting(document, target, least=2 if pairs else 1)
            else:
                chunks += self._enough(document, target, pairs)
        starts, ends = np.array(chunks, np.int32).reshape(-1, 2).T
        middles = starts + self.rng.integers(1, ends - starts) if pairs else ends
        rows = np.stack([starts, middles, middles, ends, np.zeros_like(starts)], axis=1)
        if not repeated:
            return rows
        self.counts["instances_repeated"] += len(repeated)
        return np.concatenate([rows, [(*chunk, *chunk, 0) for chunk in repeated]])

    def _enough(self, document: int, target: int, pairs: bool) -> list[tuple[int, int]]:
        """Returns runs of sentences with at least `target` tokens; the last one may have fewer.

        With `pairs`, a run needs two sentences.
        """
        chunks = []
        start, last = self._documents[document : document + 2]
        if pairs and last - start == 1:
            self.counts["documents_skipped_single_sentence"] += 1
            return []
        while start < last:
            end = self._chunk_end(start, last, target)
            if pairs and end - start == 1:
                # Joined with the next sentence, the last one with the previous.
                if end < last:
                    end += 1
                else:
                    start -= 1
            chunks.append((start, end))
            start = end
        return chunks

    def _fitting(self, document: int, target: int, least: int) -> list[tuple[int, int]]:
        """Returns the runs of at least `least` sentences with at most `target` tokens.

        The sentence that no longer fits is left out. If it began the next run, first sentences
        would be longer than others, and their lengths would tell the order of the segments.
        """
        chunks = []
        start, last = self._documents[document : document + 2]
        while start < last:
            fitting = self._bounds[start] + target
            end = bisect_right(self._bounds, fitting, start + 1, last + 1) - 1
            if end - start >= least:
                chunks.append((start, end))
            else:
                self.counts["sentences_left_out"] += end - start
            self.counts["sentences_left_out"] += int(end < last)
            start = end + 1
        return chunks

    def nsp_pass(self) -> np.ndarray:
        """Returns the instances of one pass for "nsp".

        The next chunk starts with the sentences that an unrelated segment has replaced.
        """
        rows = []
        for document, target in enumerate(self._targets()):
            start, last = self._documents[document : document + 2]
            while start < last:
                end = self._chunk_end(start, last, target)
                single = end - start == 1
                middle = end if single else start + int(self.rng.integers(1, end - start))
                if not single and self.rng.random() >= 0.5:
                    rows.append((start, middle, middle, end, 0))
                    start = end
                    continue
                length = self._bounds[middle] - self._bounds[start]
                unrelated = self._unrelated(document, target - length)
                if unrelated is None:
                    self.counts["chunks_dropped_no_other_document"] += 1
                else:
                    rows.append((start, middle, *unrelated, 1))
                start = middle
        return np.array(rows, np.int32)

    def _unrelated(self, document: int, tokens: int) -> tuple[int, int] | None:
        """Draws sentences [start, end) of another document with about `tokens` tokens.

        Returns None if no other document was drawn.
        """
        for _ in range(_TRIES):
            other = int(self.rng.integers(len(self._documents) - 1))
            if other != document:
                first, last = self._documents[other : other + 2]
                start = int(self.rng.integers(first, last))
                return start, self._chunk_end(start, last, max(tokens, 1))
        return None

    def shortened(self, segments: np.ndarray) -> np.ndarray:
        """Shortens instances that are too long, given and returned as int32 [4, n] without labels.

        The official builder removes one token after the other from the longer segment, at its front
        or its end with equal probability. This determines the final lengths, and the number of
        tokens removed in front is binomial. Which of two equal segments loses a token is random, so
        that the lengths do not tell the order of the segments. Then a cut inside a word is moved to
        the edge of the word, away from the removed part, unless that would empty the segment.
        """
        longest = self.options.max_text_tokens
        a_start, a_end, b_start, b_end = segments
        a, b = a_end - a_start, b_end - b_start
        half = longest // 2 + self.rng.integers(0, 1 + longest % 2, len(a), np.int32)
        new_a = np.minimum(a, np.maximum(half, longest - b))
        new_b = np.minimum(b, np.maximum(longest - half, longest - a))
        self.counts["instances_truncated"] += int((a + b > longest).sum())
        self.counts["tokens_truncated"] += int((a + b - new_a - new_b).sum())
        rows = []
        for start, end, cut in ((a_start, a_end, a - new_a), (b_start, b_end, b - new_b)):
            front = self.rng.binomial(cut, 0.5).astype(np.int32)
            new_start, new_end = start + front, end - (cut - front)
            new_start = self._move_to_word_edge(new_start, new_end, front > 0, step=1)
            new_end = self._move_to_word_edge(new_end, new_start, cut > front, step=-1)
            rows += [new_start, new_end]
        return np.stack(rows)

    def _move_to_word_edge(
        self, edges: np.ndarray, others: np.ndarray, was_cut: np.ndarray, step: int
    ) -> np.ndarray:
        """Moves cut edges of segments inwards to the next word start; keeps them if there is none.

        The edges, int32 [n], are starts with a `step` of 1, or ends with -1. They must not reach
        the `others`.
        """
        moved = edges.copy()
        rows = np.flatnonzero(was_cut)
        # Words are short, so a few steps over the edges are faster than one over the whole text.
        while len(rows):
            rows = rows[~self.word_starts[self.bucket.tokens[moved[rows]]]]
            moved[rows] += step
            rows = rows[moved[rows] != others[rows]]
        return np.where(moved == others, edges, moved)
