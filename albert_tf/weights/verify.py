# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Verifies pretrained weights: measures both pretraining losses on a text, and gives a verdict.

  python -m albert_tf.weights.verify albert_base_v2.tar.gz --text=books.txt

The text has one sentence per line and an empty line between documents, as written by
split_sentences.py. 15 % of its words are masked, all with [MASK], which is harder than in
pretraining; half of its pairs of segments are swapped. Weights load even if they were trained with
another vocabulary, activation or number of heads, but such a model is confident in predictions that
are worse than unigram frequencies. A correct model is not, even after a few training steps.
"""

from __future__ import annotations

if __name__ == "__main__":  # Before the other imports, which take a while.
    from albert_tf.io.interrupts import end_on_interrupt

    end_on_interrupt()

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress
from albert_tf.io.text_files import check_text_file, read_lines
from albert_tf.pretrained.locate import VOCABULARY, check_vocabulary
from albert_tf.tokenization.sequences import join_segments, pad_sequences

if TYPE_CHECKING:
    from albert_tf.modeling.pretrainer import AlbertPretrainer
    from albert_tf.tokenization.tokenizer import Tokenizer

FLAGS = flags.FLAGS
MASKED_SHARE = 0.15
_BATCH = 16
#: Nats by which a model's loss may exceed its entropy, the loss that it expects.
_OVERCONFIDENCE = 0.5
TRAINED, UNTRAINED, WRONG = "trained", "untrained", "wrong configuration"
_EXPLANATIONS = {
    TRAINED: "the predictions are better than the pieces' frequencies",
    UNTRAINED: "the predictions are not better than the pieces' frequencies",
    WRONG: "confident but wrong; compare vocabulary, language, number of heads "
    "and activation with those of its training",
}


class Pair(NamedTuple):
    """Two consecutive segments, as ids."""

    first: list[int]
    second: list[int]


@dataclasses.dataclass(frozen=True)
class Verification:
    """The model's losses on a text, in nats.

    Attributes:
      mlm_loss, mlm_accuracy: on the masked pieces.
      uniform_loss: of a uniform distribution, ln V.
      unigram_loss: of the pieces' frequencies in the text.
      entropy: mean entropy of the predictions, which is the loss that the model expects.
      sop_loss, sop_accuracy: sentence order; None for a source without this head.
      num_sequences, num_masked: sequences read and pieces predicted.
    """

    mlm_loss: float
    mlm_accuracy: float
    uniform_loss: float
    unigram_loss: float
    entropy: float
    sop_loss: float | None
    sop_accuracy: float | None
    num_sequences: int
    num_masked: int

    @property
    def verdict(self) -> str:
        """TRAINED, UNTRAINED or WRONG."""
        if self.mlm_loss < self.unigram_loss:
            return TRAINED
        return WRONG if self.mlm_loss > self.entropy + _OVERCONFIDENCE else UNTRAINED

    def __str__(self) -> str:
        """Formats the report for the terminal."""
        if self.sop_loss is None:
            order = ["sentence order  the source has no such head"]
        else:
            order = [
                f"sentence order  loss {self.sop_loss:7.3f}  accuracy {self.sop_accuracy:6.1%}",
                f"  by chance     loss {math.log(2):7.3f}  accuracy  50.0%",
            ]
        lines = [
            f"{self.num_masked:,} masked pieces in {self.num_sequences:,} sequences",
            f"masked LM       loss {self.mlm_loss:7.3f}  accuracy {self.mlm_accuracy:6.1%}",
            f"  as it expects loss {self.entropy:7.3f}",
            f"  frequencies   loss {self.unigram_loss:7.3f}",
            f"  equal chances loss {self.uniform_loss:7.3f}  (ln of the vocabulary's size)",
            *order,
            f"Verdict: {self.verdict} ({_EXPLANATIONS[self.verdict]}).",
        ]
        return "\n".join(lines)


def read_pairs(lines: Iterable[str], tokenizer: Tokenizer, max_seq_length: int) -> Iterator[Pair]:
    """Splits documents between sentences into pairs of segments that fill a sequence."""
    room = max_seq_length - 3
    sentences: list[list[int]] = []
    for line in itertools.chain(lines, [""]):
        ids = tokenizer.encode(line)[: room // 2]
        if not line.strip() or sum(map(len, sentences)) + len(ids) > room:
            if len(sentences) > 1:
                middle = len(sentences) // 2
                halves = sentences[:middle], sentences[middle:]
                yield Pair(*(list(itertools.chain(*half)) for half in halves))
            sentences = []
        if ids:
            sentences.append(ids)


def mask_words(
    ids: np.ndarray, tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Replaces all pieces of 15 % of the words, at least of one word, with [MASK].

    Args:
      ids: int32 [S], with special pieces.
      tokenizer: of the ids.
      rng: draws the words.

    Returns:
      The ids with [MASK], int32 [S], and where it is, bool [S].
    """
    word = np.cumsum(tokenizer.word_starts[ids])
    is_text = ~np.isin(ids, tokenizer.special_ids)
    words = np.unique(word[is_text])
    count = min(max(1, round(MASKED_SHARE * len(words))), len(words))
    masked = is_text & np.isin(word, rng.choice(words, count, replace=False))
    return np.where(masked, tokenizer.mask_id, ids).astype(np.int32), masked


def verify(
    model: AlbertPretrainer,
    tokenizer: Tokenizer,
    lines: Iterable[str],
    max_seq_length: int = 128,
    max_sequences: int = 200,
    seed: int = 0,
) -> Verification:
    """Measures both pretraining losses on a text.

    Args:
      model: from load_pretrained.
      tokenizer: of the model.
      lines: sentences, with an empty line between documents.
      max_seq_length: pieces of a sequence, at most.
      max_sequences: sequences, at most, from the start of the text.
      seed: decides what is masked and swapped.

    Raises:
      AlbertError: the text has no two consecutive sentences, or no word of the vocabulary.
    """
    pairs = list(itertools.islice(read_pairs(lines, tokenizer, max_seq_length), max_sequences))
    if not pairs:
        raise AlbertError(
            "The text has no two sentences in a row; give one sentence per line, with an empty "
            "line between documents (data_prep/split_sentences.py writes such files)."
        )
    rng = np.random.default_rng(seed)
    counts = np.bincount(
        [i for pair in pairs for part in pair for i in part], minlength=tokenizer.vocab_size
    )
    unigram = np.log(np.maximum(counts, 1) / counts.sum())
    measured = []
    with Progress("verify", len(pairs), "sequences") as progress:
        for start in range(0, len(pairs), _BATCH):
            batch = make_batch(pairs[start : start + _BATCH], tokenizer, rng)
            measured.append(_measure(model, batch, unigram))
            progress.update(len(batch.labels))
    values = {name: np.concatenate([part[name] for part in measured]) for name in measured[0]}
    num_masked = len(values["mlm_loss"])
    if not num_masked:
        raise AlbertError("No word of the text is in the vocabulary; give the text's vocabulary.")
    from albert_tf.weights.source import SENTENCE_ORDER

    means: dict[str, float | None] = {name: float(v.mean()) for name, v in values.items()}
    if SENTENCE_ORDER & {*model.load_report.missing}:
        means["sop_loss"] = means["sop_accuracy"] = None
    return Verification(
        **means,
        uniform_loss=math.log(model.config.vocab_size),
        num_sequences=len(pairs),
        num_masked=num_masked,
    )


class MaskedBatch(NamedTuple):
    """Masked sequences with their labels.

    Attributes:
      inputs: the model's inputs, int32 [B, S] each.
      labels: int32 [B, S], the ids without [MASK].
      masked: bool [B, S].
      swapped: int64 [B], 1 for swapped segments.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray
    masked: np.ndarray
    swapped: np.ndarray


def make_batch(pairs: list[Pair], tokenizer: Tokenizer, rng: np.random.Generator) -> MaskedBatch:
    """Swaps half of the pairs, masks words, and pads to the longest sequence."""
    swapped = rng.integers(0, 2, len(pairs))
    ordered = [pair[::-1] if swap else pair for pair, swap in zip(pairs, swapped)]
    first_lengths = [len(first) + 2 for first, _ in ordered]
    sequences = [join_segments(tokenizer, *pair) for pair in ordered]
    inputs = pad_sequences(tokenizer, sequences, first_lengths)
    labels = inputs["input_word_ids"]
    ids, masked = labels.copy(), np.zeros(labels.shape, bool)
    for row, sequence in enumerate(sequences):
        cut = np.s_[row, : len(sequence)]
        ids[cut], masked[cut] = mask_words(sequence, tokenizer, rng)
    return MaskedBatch({**inputs, "input_word_ids": ids}, labels, masked, swapped)


def _measure(
    model: AlbertPretrainer, batch: MaskedBatch, unigram: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the figures of Verification for every masked piece or pair."""
    counts, swapped = batch.masked.sum(axis=1), batch.swapped
    # Logits at all positions would take 250 MB with the released vocabularies.
    positions = np.argsort(~batch.masked, axis=1, kind="stable")[:, : max(1, counts.max())]
    valid = np.arange(positions.shape[1]) < counts[:, None]
    outputs = model({**batch.inputs, "masked_lm_positions": positions.astype(np.int32)})
    targets = np.take_along_axis(batch.labels, positions, axis=1)[valid]
    log_probs = _log_softmax(outputs["mlm_logits"].numpy()[valid])
    order = _log_softmax(outputs["sop_logits"].numpy())
    return {
        "mlm_loss": -log_probs[np.arange(len(targets)), targets],
        "mlm_accuracy": log_probs.argmax(axis=1) == targets,
        "entropy": -(np.exp(log_probs) * log_probs).sum(axis=1),
        "unigram_loss": -unigram[targets],
        "sop_loss": -order[np.arange(len(swapped)), swapped],
        "sop_accuracy": order.argmax(axis=1) == swapped,
    }


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def define_flags() -> None:
    """Defines the flags of this script."""
    define_path(
        "text",
        None,
        "Text with one sentence per line and an empty line between documents.",
        required=True,
        check=check_text_file,
    )
    define_path(
        "vocab_file", None, f"{VOCABULARY}. "
        "Default: the one next to the weights.", check=check_vocabulary
    )  # fmt: skip
    flags.DEFINE_bool(
        "do_lower_case",
        None,
        "Lower-case the text. Default: as in the source's tokenizer, or true.",
    )
    flags.DEFINE_integer("max_seq_length", 128, "Maximum sequence length in tokens.", 16)
    flags.DEFINE_integer("max_sequences", 200, "Maximum number of sequences.", 1)
    flags.DEFINE_integer("random_seed", 0, "Seed of masks and swapped segments.", 0)


def _main(path: str) -> None:
    from albert_tf.tokenization.tokenizer import Tokenizer
    from albert_tf.weights.load import load_pretrained, open_source

    # The report says so if there is no sentence order head; the masked LM head is required.
    warnings.filterwarnings("ignore", message=".* was loaded in part")
    model = load_pretrained(path, allow_partial=True)
    missing = [n for n in model.load_report.missing if n.startswith("cls/predictions")]
    if missing:
        raise AlbertError(f"{path} has no masked LM head: it lacks {', '.join(missing)}.")
    if FLAGS.vocab_file:
        tokenizer = Tokenizer.from_file(FLAGS.vocab_file, FLAGS.do_lower_case)
    else:
        tokenizer = open_source(path).tokenizer(FLAGS.do_lower_case)
    if tokenizer is None:
        raise AlbertError(f"There is no vocabulary with {path}; give --vocab_file.")
    model.config.check_vocabulary(tokenizer.vocab_size, FLAGS.vocab_file or f"of {path}")
    length = min(FLAGS.max_seq_length, model.config.max_position_embeddings)
    lines = read_lines(FLAGS.text)
    print(verify(model, tokenizer, lines, length, FLAGS.max_sequences, FLAGS.random_seed))


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags, arguments=("PATH",))


if __name__ == "__main__":
    main()
