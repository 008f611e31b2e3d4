# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""load_pretrained, and PretrainedModel: vectors of texts, fillings of masks, scores of texts."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import length_batches
from albert_tf.errors import AlbertError, printable
from albert_tf.io.json_values import short_repr
from albert_tf.io.tensorflow_import import check_not_forked
from albert_tf.keras2 import keras
from albert_tf.modeling.attention import Select
from albert_tf.modeling.encoder import first_position
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.sentencepiece_model import WORD_START
from albert_tf.tokenization.sequences import join_segments, pad_sequences
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, Tokenizer, checked_text, checked_texts
from albert_tf.weights.load import (
    POOLER,
    SENTENCE_ORDER,
    LoadReport,
    assign_weights,
    open_source,
)

POOLINGS = ("mean", "cls")
MASK = "[MASK]"
#: The scope of the masked-language-model head.
_HEAD_SCOPE = "cls/predictions"


@dataclasses.dataclass(frozen=True)
class FilledMask:
    """A text whose masks are filled.

    Attributes:
      words: the pieces in the masks, without marks for the start or the inside of a word.
      score: product of the pieces' probabilities. Each mask is predicted by itself.
      text: the whole text.
    """

    words: tuple[str, ...]
    score: float
    text: str


def load_pretrained(path: str, allow_partial: bool = False) -> PretrainedModel:
    """Loads a pretrained ALBERT of any format, and checks every variable.

    The model has the attributes `config` (read from the source, never guessed), `tokenizer` (None
    if the source has none) and `load_report`. `embed`, `fill_mask` and `score` take texts. If the
    source is a masked LM without the sentence order head (or without the pooler too), these keep
    their random weights, and a warning lists them.

    Args:
      path: a folder, checkpoint or archive in a format of docs/checkpoints.md; or the name of a
        model that is bundled ("albert_tiny_books") or downloaded ("albert/albert-base-v2").
      allow_partial: accept a source with other heads, such as a fine-tuned model. Missing heads
        and a missing pooler keep their random weights, and a warning lists the differences. The
        rest of the encoder must match.

    Raises:
      AlbertError: there is no model at `path`, it cannot be read, it has no configuration, its
        vocabulary has another size than its tokenizer, or variables are missing, unexpected or of
        another shape. All such variables are listed.
      DivergedError: a weight is not finite.

    Example:
      model = albert_tf.load_pretrained("albert_tiny_books")
      model.embed(["It was the best of times."])
      model(dict(input_word_ids=ids, input_mask=mask, input_type_ids=types))["mlm_logits"]
    """
    source = open_source(path)
    config, tokenizer = source.config(), source.tokenizer()
    if config is None:
        raise AlbertError(
            f"There is no albert_config.json with {source.location}; put it there. The number of "
            "attention heads cannot be derived from the weights."
        )
    if tokenizer:
        config.check_vocabulary(tokenizer.vocab_size, f"of {source.location}")
    model = PretrainedModel(config)
    report = assign_weights(source, model.named_weights())
    _check_report(report, allow_partial)
    model.tokenizer, model.load_report = tokenizer, report
    return model


def _check_report(report: LoadReport, allow_partial: bool) -> None:
    """Raises AlbertError for variables that do not match, or warns of them."""
    if report.repeated:
        warnings.warn(f"{report.checkpoint}: {report.positions_note}.", stacklevel=3)
    differences = printable(report.differences(report.missing, report.unexpected))
    if not differences:
        return
    encoder_matches = not (report.missing_of_encoder or report.unexpected_of_encoder)
    is_masked_lm = not report.unexpected and {*report.missing} <= POOLER | SENTENCE_ORDER
    if is_masked_lm or (allow_partial and encoder_matches):
        warnings.warn(f"{report.checkpoint} was loaded in part: {differences}.", stacklevel=3)
        return
    hint = " A model with other heads can be loaded in part (allow_partial)."
    raise AlbertError(
        f"The checkpoint {report.checkpoint} is not a whole pretrained model: {differences}."
        f"{hint if encoder_matches else ''}"
    )


@keras.utils.register_keras_serializable(package="albert_tf")
class PretrainedModel(AlbertPretrainer):
    """An AlbertPretrainer that takes texts; made by albert_tf.load_pretrained.

    Attributes:
      config: the architecture.
      encoder: the AlbertEncoder.
      tokenizer: of the checkpoint; None if it has none.
      load_report: which weights were read.

    Example:
      model = albert_tf.load_pretrained("albert_tiny_books")
      vectors = model.embed(["It was the best of times.", "Call me Ishmael."])
    """

    tokenizer: Tokenizer | None = None
    load_report: LoadReport | None = None

    def embed(self, texts: Sequence[str], pooling: str = "mean") -> np.ndarray:
        """Returns a vector for each text.

        Texts are encoded in batches of similar lengths. Many texts show progress. Texts that are
        longer than the model's positions are cut, with one warning.

        Args:
          texts: N texts.
          pooling: "mean", the mean of the last layer over all pieces of a text with [CLS] and
            [SEP], without padding; or "cls", the last layer at [CLS], before the pooler. For most
            pretrained models "mean" is better for search.

        Returns:
          Float32 [N, hidden_size], in the order of the texts.

        Raises:
          AlbertError: the texts are not a list of strings, `pooling` is unknown, or the model has
            no tokenizer.
        """
        if pooling not in POOLINGS:
            raise AlbertError(f"pooling={short_repr(pooling)} is not one of {', '.join(POOLINGS)}.")
        sequences = self._sequences(checked_texts(texts))
        vectors = np.zeros([len(sequences), self.config.hidden_size], np.float32)
        vectors_of = getattr(self._graphs, pooling)
        for rows, length in length_batches([len(s) for s in sequences], "embedding"):
            chosen = [sequences[row] for row in rows]
            vectors[rows] = vectors_of(pad_sequences(self.tokenizer, chosen, length=length))
        return vectors

    def fill_mask(self, text: str, top_k: int = 5) -> list[FilledMask]:
        """Returns the most probable fillings of the masks in a text, the best first.

        Args:
          text: a text with one or several [MASK], each for one piece of the vocabulary.
          top_k: the number of fillings. With several masks these are the best combinations.

        Raises:
          AlbertError: the text has no [MASK] or is too long, or the model has no tokenizer or no
            masked-language-model head.
        """
        parts = checked_text(text).split(MASK)
        if len(parts) == 1:
            raise AlbertError(f"There is no {MASK} in the text {short_repr(text)}; put one in.")
        if not isinstance(top_k, int) or top_k < 1:
            raise AlbertError(f"top_k={short_repr(top_k)} must be a positive integer.")
        tokenizer = self._masked_tokenizer()
        ids = join_segments(tokenizer, _encode_parts(tokenizer, parts))
        if len(ids) > self.config.max_position_embeddings:
            raise AlbertError(
                f"The text has {len(ids)} pieces with [CLS] and [SEP], but the model takes at most "
                f"{self.config.max_position_embeddings}; shorten it."
            )
        positions = np.flatnonzero(ids == tokenizer.mask_id)[None].astype(np.int32)
        log_probs = self._graphs.predicted(pad_sequences(tokenizer, [ids]), positions)[0].numpy()
        log_probs[:, tokenizer.special_ids] = -np.inf
        # The masks are independent, so the best combinations of all masks extend the best ones of
        # the first masks.
        best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for row in log_probs:
            top = np.argsort(-row, kind="stable")[: min(top_k, np.isfinite(row).sum())]
            longer = ((score + row[i], (*pieces, int(i))) for score, pieces in best for i in top)
            best = heapq.nlargest(top_k, longer)
        return [_filled(tokenizer, parts, pieces, math.exp(score)) for score, pieces in best]

    def score(self, text: str) -> float:
        """Returns the pseudo-log-likelihood of a text: how likely it is for the model.

        It is the sum of log P(piece | all other pieces) over the pieces of the text, each masked in
        turn, with the natural logarithm. Compare it between texts of similar length, or divide it
        by the number of pieces. A text longer than the model's positions is cut, with a warning.

        Source: Salazar et al. (2020), Masked Language Model Scoring.

        Raises:
          AlbertError: the text is not a string, or the model has no tokenizer or no
            masked-language-model head.
        """
        tokenizer = self._masked_tokenizer()
        (ids,) = self._sequences([checked_text(text)])
        positions = np.arange(1, len(ids) - 1, dtype=np.int32)
        masked = np.tile(ids, [len(positions), 1])
        masked[np.arange(len(positions)), positions] = tokenizer.mask_id
        total = 0.0
        for rows, length in length_batches([len(ids)] * len(positions), "scoring"):
            batch = pad_sequences(tokenizer, masked[rows], length=length)
            log_probs = self._graphs.predicted(batch, positions[rows, None])[:, 0]
            total += float(tf.reduce_sum(tf.gather(log_probs, ids[positions[rows]], batch_dims=1)))
        return total

    def __repr__(self) -> str:
        """Says where the weights are from, and how large the model is."""
        origin = self.load_report.checkpoint if self.load_report else "no checkpoint"
        kind = f"{self.tokenizer.spec.kind}, " if self.tokenizer else "none; the model has "
        return (
            f"{type(self).__name__} of {origin}\n"
            f"  parameters: {self.count_params():,}\n"
            f"  config: {self.config}\n"
            f"  tokenizer: {kind}{self.config.vocab_size:,} pieces"
        )

    @property
    def _graphs(self) -> _Graphs:
        check_not_forked()
        return self._all_graphs

    @functools.cached_property
    def _all_graphs(self) -> _Graphs:
        return _Graphs(self)

    def _checked_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise AlbertError(
                "The model has no vocabulary, so it cannot read texts; put the checkpoint's .model "
                "file or vocab.txt beside the weights and load it again."
            )
        return self.tokenizer

    def _masked_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer of a model that predicts masked pieces."""
        missing = self.load_report.missing if self.load_report else ()
        if any(name.startswith(_HEAD_SCOPE) for name in missing):
            raise AlbertError(
                f"{self.load_report.checkpoint} has no masked-language-model head "
                f"({_HEAD_SCOPE}), so it cannot predict pieces; load a pretrained model that has."
            )
        return self._checked_tokenizer()

    def _sequences(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns [CLS] text [SEP] of each text, cut to the model's positions with a warning."""
        tokenizer = self._checked_tokenizer()
        longest = self.config.max_position_embeddings
        encoded = tokenizer.encode_batch(texts)
        if cut := sum(len(ids) + 2 > longest for ids in encoded):
            warnings.warn(
                f"{cut:,} of {len(texts):,} texts are longer than the model's {longest} positions "
                "and are cut.",
                stacklevel=3,
            )
        return [join_segments(tokenizer, ids[: longest - 2]) for ids in encoded]


class _Graphs:
    """The model's traced functions, in an object that Keras does not save with the model."""

    def __init__(self, model: PretrainedModel) -> None:
        names = ("input_word_ids", "input_mask", "input_type_ids")
        inputs = dict.fromkeys(names, tf.TensorSpec([None, None], tf.int32))
        positions = tf.TensorSpec([None, None], tf.int32)

        def sequence_output(batch: dict[str, tf.Tensor], select: Select = None) -> tf.Tensor:
            return tf.cast(model.encoder(batch, select=select)["sequence_output"], tf.float32)

        def mean(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            present = tf.cast(batch["input_mask"], tf.float32)[..., None]
            total = tf.reduce_sum(sequence_output(batch) * present, axis=1)
            return total / tf.reduce_sum(present, axis=1)

        def predicted(batch: dict[str, tf.Tensor], positions: tf.Tensor) -> tf.Tensor:
            logits = model({**batch, "masked_lm_positions": positions})["mlm_logits"]
            return tf.nn.log_softmax(logits)

        #: Vectors [B, H] by `pooling`, and log-probabilities [B, P, V].
        self.mean = tf.function(mean, [inputs], autograph=False)
        self.cls = tf.function(
            lambda batch: sequence_output(batch, first_position)[:, 0], [inputs], autograph=False
        )
        self.predicted = tf.function(predicted, [inputs, positions], autograph=False)


def _encode_parts(tokenizer: Tokenizer, parts: Sequence[str]) -> list[int]:
    """Returns the ids of the parts of a text, with [MASK] between them."""
    first, *others = tokenizer.encode_batch(parts)
    ids = list(first)
    for part, encoded in zip(parts[1:], others):
        if encoded and not part[0].isspace():
            # SentencePiece marks the beginning of every text as that of a word. Here the mask is
            # before it, as in "[MASK].".
            piece = tokenizer.id_to_piece(encoded[0])
            inside = piece.removeprefix(WORD_START)
            number = tokenizer.piece_to_id(inside)
            if not inside:
                encoded = encoded[1:]
            elif inside != piece and number != tokenizer.unk_id:
                encoded = [number, *encoded[1:]]
        ids += [tokenizer.mask_id, *encoded]
    return ids


def _filled(
    tokenizer: Tokenizer, parts: Sequence[str], pieces: Sequence[int], score: float
) -> FilledMask:
    """Puts pieces between the parts of a text; a piece inside a word joins the text before it."""
    text, words = parts[0], []
    for number, part in zip(pieces, parts[1:]):
        piece = tokenizer.id_to_piece(number)
        if tokenizer.spec.kind == SENTENCEPIECE:
            word, joins = piece.removeprefix(WORD_START), not piece.startswith(WORD_START)
        else:
            word, joins = piece.removeprefix("##"), piece.startswith("##")
        if joins:
            text = text.rstrip()
        elif piece.startswith(WORD_START) and text[-1:].isalnum():
            text += " "
        text += word + part
        words.append(word)
    return FilledMask(tuple(words), score, text)
