# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How often models prefer a sentence of the held-out books to a spoiled copy of it.

  python -m scripts.minimal_pairs --train_file=train.txt --models=albert_tiny_books

Agreement: the one word of WORDS in the sentence is replaced by its partner, "is" by "are". Order:
two neighboring words inside the sentence change places. A model prefers what has the higher sum of
log probabilities of its pieces, each masked alone. The trigrams are those of the training text, one
sentence a line, with the backoff of Brants et al. (2007).
"""

from __future__ import annotations

import collections
import itertools
import math
import random
from collections.abc import Iterator, Sequence

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_path
from albert_tf.io.text_files import read_lines
from demo.run import UNREAD

WORDS = ("is are", "was were", "has have", "does do", "this these", "that those")
PARTNERS = {a: b for pair in WORDS for a, b in itertools.permutations(pair.split())}
_BACKOFF, _BATCH = 0.4, 256
Pair = tuple[list[str], list[str]]


def define_flags() -> None:
    """Defines the flags."""
    define_path("train_file", None, "Text that the trigrams are counted in.", required=True)
    flags.DEFINE_list("models", ["albert_tiny_books"], "Pretrained models.")
    flags.DEFINE_integer("pairs", 1000, "Pairs of each kind, at most.", 1)


def make_pairs(count: int) -> dict[str, list[Pair]]:
    """Returns pairs of a sentence and its spoiled copy, as words, by kind; always the same ones."""
    rng, pairs = random.Random(0), {"agreement": [], "order": []}
    lines = [words for words in map(str.split, read_lines(UNREAD)) if 8 <= len(words) <= 25]
    rng.shuffle(lines)
    for words in lines:
        places = [i for i, word in enumerate(words) if word in PARTNERS]
        if len(places) == 1:
            (i,) = places
            pairs["agreement"].append((words, [*words[:i], PARTNERS[words[i]], *words[i + 1 :]]))
        i = rng.randrange(1, len(words) - 2)
        if words[i] != words[i + 1]:
            pairs["order"].append((words, [*words[:i], words[i + 1], words[i], *words[i + 2 :]]))
    return {kind: found[:count] for kind, found in pairs.items()}


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yields for each word, and for the end, what ends with it: one, two and three words."""
    padded = ["<s>", "<s>", *words, "</s>"]
    return (tuple(padded[i - n : i + 1]) for i in range(2, len(padded)) for n in range(3))


def trigram_scores(path: str, sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the scores of sentences by their trigrams, float64 [n]."""
    wanted = {gram for words in sentences for gram in _grams(words)}
    wanted |= {gram[:-1] for gram in wanted}
    counts, total, lines = collections.Counter(), 0, 0
    for line in read_lines(path):
        words = line.split()
        total, lines = total + len(words) + 1, lines + 1
        counts.update(gram for gram in _grams(words) if gram in wanted)
    counts["<s>",] = counts["<s>", "<s>"] = lines

    def share(one, two, three) -> float:
        if counts[three]:
            return counts[three] / counts[three[:-1]]
        if counts[two]:
            return _BACKOFF * counts[two] / counts[two[:-1]]
        return _BACKOFF**2 * (counts[one] + 1) / total

    return np.array([sum(math.log(share(*x)) for x in zip(*[_grams(s)] * 3)) for s in sentences])


def model_scores(name: str, sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the sums of the log probabilities of the pieces of sentences, float64 [n]."""
    import tensorflow as tf

    import albert_tf

    model = albert_tf.load_pretrained(name)
    tokenizer, scores = model.tokenizer, np.zeros(len(sentences))
    predict = tf.function(
        lambda x: tf.nn.log_softmax(model(x)["mlm_logits"][:, 0]), reduce_retracing=True
    )
    texts = tokenizer.encode_batch([" ".join(words) for words in sentences])
    ids = [[tokenizer.cls_id, *text, tokenizer.sep_id] for text in texts]
    rows = [(len(x), n, i) for n, x in enumerate(ids) for i in range(1, len(x) - 1)]
    rows.sort(reverse=True)
    for begin in range(0, len(rows), _BATCH):
        part = rows[begin : begin + _BATCH]
        words = np.full([len(part), -(-part[0][0] // 8) * 8], tokenizer.pad_id, np.int32)
        for row, (length, n, i) in zip(words, part):
            row[:length] = ids[n]
            row[i] = tokenizer.mask_id
        inputs = {
            "input_word_ids": tf.constant(words),
            "input_mask": tf.constant(words != tokenizer.pad_id, tf.int32),
            "masked_lm_positions": tf.constant([[i] for _, _, i in part], tf.int32),
        }
        for found, (_, n, i) in zip(predict(inputs).numpy(), part):
            scores[n] += found[ids[n][i]]
    return scores


def main() -> None:
    """Prints a line for each model and kind."""
    for kind, pairs in make_pairs(FLAGS.pairs).items():
        sentences = [words for pair in pairs for words in pair]
        ways = {"trigrams": lambda given: trigram_scores(FLAGS.train_file, given)}
        ways |= {name: lambda given, name=name: model_scores(name, given) for name in FLAGS.models}
        for name, score in ways.items():
            found = score(sentences)
            print(f"{kind}, {len(pairs)} pairs: {name} {np.mean(found[::2] > found[1::2]):.1%}")


if __name__ == "__main__":
    script.run(main, define_flags)
