# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""load_pretrained, and PretrainedModel: vectors of texts, and fillings of masks."""

from __future__ import annotations

import functools
import heapq
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import POOLINGS
from albert_tf.data.length_batches import length_batches
from albert_tf.errors import AlbertError, printable
from albert_tf.io.json_values import short_repr
from albert_tf.io.tensorflow_import import check_not_forked
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import INPUTS, pooled
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.settings import check_integer
from albert_tf.tokenization.sentencepiece_model import WORD_START
from albert_tf.tokenization.sequences import join_segments, pad_sequences
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, Tokenizer, checked_text, checked_texts
from albert_tf.tokenization.wordpiece import CONTINUATION
from albert_tf.weights.load import (
    POOLER,
    SENTENCE_ORDER,
    LoadReport,
    differences,
    load_weights,
    open_source,
)

MASK = "[MASK]"
#: The scope of the masked-language-model head.
_HEAD_SCOPE = "cls/predictions"


class FilledMask(NamedTuple):
    """A text whose masks are filled.

    Attributes:
      words: the pieces in the masks, without marks for the start or the inside of a word.
      score: product of the pieces' probabilities. Each mask is predicted by itself.
      text: the whole text.
    """

    words: tuple[str, ...]
    score: float
    text: str


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors of length 1, [..., H]; one of length 0 stays."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)


def load_pretrained(path: str, allow_partial: bool = False) -> PretrainedModel:
    """Loads a pretrained ALBERT of any format, and checks every variable.

    The model has the attributes `config` (read from the source, never guessed), `tokenizer` (None
    if the source has none) and `load_report`. `embed` and `fill_mask` take texts. If the
    source is an encoder alone, or a masked LM without the sentence order head (or without the
    pooler too), what it lacks keeps its random weights, and a warning lists them.

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
    report = load_weights(source, model.named_weights())
    _check_report(report, allow_partial, model.named_weights())
    model.tokenizer, model.load_report = tokenizer, report
    return model


def _check_report(report: LoadReport, allow_partial: bool, names: Iterable[str]) -> None:
    """Raises AlbertError for heads that do not match, or warns of them.

    `names` are those of the model's variables.
    """
    if report.repeated:
        warnings.warn(f"{report.checkpoint}: {report.positions_note}.", stacklevel=3)
    found = printable(differences(report.missing, report.unexpected))
    if not found:
        return
    head = {name for name in names if name.startswith(_HEAD_SCOPE)}
    lacks_heads = {*report.missing} - POOLER - SENTENCE_ORDER in (set(), head)
    if not (allow_partial or (lacks_heads and not report.unexpected)):
        raise AlbertError(
            f"The checkpoint {report.checkpoint} is not a whole pretrained model: {found}. "
            "A model with other heads can be loaded in part (`allow_partial`)."
        )
    warnings.warn(f"{report.checkpoint} was loaded in part: {found}.", stacklevel=3)


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

    tokenizer = load_report = None

    def embed(
        self,
        texts: Sequence[str],
        pooling: str = "sif",
        *,
        batch_size: int | None = None,
        normalize: bool = False,
    ) -> np.ndarray:
        """Returns a vector for each text.

        Texts are encoded in batches of similar lengths. Many texts show progress. Texts that are
        longer than the model's positions are cut, with one warning.

        Args:
          texts: N texts.
          pooling: "sif", the mean of the first and the last layer over all pieces of a text, in
            which rare pieces count more; "mean", that of the last layer, in which all count the
            same; or "cls", the last layer at [CLS], before the pooler.
          batch_size: number of texts at a time; None: many, fewer of long ones.
          normalize: divide each vector by its length, so that dot products are cosines.

        Returns:
          Float32 [N, hidden_size], in the order of the texts.

        Raises:
          AlbertError: the texts are not a list of strings, `pooling` is unknown, or the model has
            no tokenizer.
        """
        if pooling not in POOLINGS:
            raise AlbertError(f"pooling={short_repr(pooling)} is not one of {', '.join(POOLINGS)}.")
        texts, longest = checked_texts(texts), self.config.max_position_embeddings
        tokenizer = self.checked_tokenizer()
        sequences = tokenizer.encode_batch(texts)
        if cut := sum(len(ids) + 2 > longest for ids in sequences):
            warnings.warn(
                f"{cut:,} of {len(texts):,} texts are longer than the model's {longest} positions "
                "and are cut.",
                stacklevel=2,
            )
        sequences = [join_segments(tokenizer, ids[: longest - 2]) for ids in sequences]
        vectors = np.zeros([len(sequences), self.config.hidden_size], np.float32)
        vectors_of = self._vectors[pooling]
        for rows, length in length_batches([len(s) for s in sequences], "embedding", batch_size):
            chosen = [sequences[row] for row in rows]
            vectors[rows] = vectors_of(pad_sequences(tokenizer, chosen, length=length))
        return unit(vectors) if normalize else vectors

    def fill_mask(
        self, text: str | Sequence[str], top_k: int = 5
    ) -> list[FilledMask] | list[list[FilledMask]]:
        """Returns the most probable fillings of the masks in a text, the best first.

        Args:
          text: a text with one or several [MASK], each for one piece of the vocabulary; or a list
            of texts, for a list of such lists.
          top_k: the number of fillings. With several masks these are the best combinations.

        Raises:
          AlbertError: the text has no [MASK] or is too long, or the model has no tokenizer or no
            masked-language-model head.
        """
        if not isinstance(text, (str, bytes)):
            return [self.fill_mask(one, top_k) for one in checked_texts(text)]
        parts = checked_text(text).split(MASK)
        if len(parts) == 1:
            raise AlbertError(f"There is no {MASK} in the text {short_repr(text)}; put one in.")
        top_k = check_integer("`top_k`", top_k)
        tokenizer = self.checked_tokenizer()
        missing = self.load_report.missing if self.load_report else ()
        if any(name.startswith(_HEAD_SCOPE) for name in missing):
            raise AlbertError(
                f"{self.load_report.checkpoint} has no masked-language-model head "
                f"({_HEAD_SCOPE}), so it cannot predict pieces; load a pretrained model that has."
            )
        ids = join_segments(tokenizer, _encode_parts(tokenizer, parts))
        if len(ids) > self.config.max_position_embeddings:
            raise AlbertError(
                f"The text has {len(ids)} pieces with [CLS] and [SEP], but the model takes at most "
                f"{self.config.max_position_embeddings}; shorten it."
            )
        positions = np.flatnonzero(ids == tokenizer.mask_id)[None].astype(np.int32)
        batch = {**pad_sequences(tokenizer, [ids]), "masked_lm_positions": positions}
        log_probs = tf.nn.log_softmax(self(batch)["mlm_logits"][0]).numpy()
        log_probs[:, tokenizer.special_ids] = -np.inf
        log_probs[:, tokenizer.vocab_size :] = -np.inf  # The table may be padded.
        # The masks are independent, so the best combinations of all masks extend the best ones of
        # the first masks.
        best = [(0.0, ())]
        for row in log_probs:
            top = np.argsort(-row, kind="stable")[: min(top_k, np.isfinite(row).sum())]
            longer = ((score + row[i], (*pieces, int(i))) for score, pieces in best for i in top)
            best = heapq.nlargest(top_k, longer)
        return [_filled(tokenizer, parts, pieces, math.exp(score)) for score, pieces in best]

    @functools.cached_property
    def _vectors(self) -> dict[str, Callable[[dict[str, np.ndarray]], tf.Tensor]]:
        """The graphs of `embed` by pooling; from a batch to float32 [B, H]."""

        inputs = dict.fromkeys(INPUTS, tf.TensorSpec([None, None], tf.int32))
        piece_weights = self.checked_tokenizer().piece_weights()
        return {
            pooling: tf.function(
                functools.partial(
                    pooled, self.encoder, pooling=pooling, piece_weights=piece_weights
                ),
                [inputs],
                autograph=False,
            )
            for pooling in POOLINGS
        }

    def checked_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer; raises AlbertError if the checkpoint has none."""
        check_not_forked()
        if self.tokenizer is None:
            raise AlbertError(
                "The model has no vocabulary, so it cannot read texts; put the checkpoint's .model "
                "file or vocab.txt beside the weights and load it again."
            )
        return self.tokenizer


def _encode_parts(tokenizer: Tokenizer, parts: Sequence[str]) -> list[int]:
    """Returns the ids of the parts of a text, with [MASK] between them."""
    ids, *others = tokenizer.encode_batch(parts)
    for part, encoded in zip(parts[1:], others):
        if encoded and not part[0].isspace():
            # SentencePiece marks the beginning of every text as that of a word. Here the mask is
            # before it, as in "[MASK].".
            inside = tokenizer.id_to_piece(encoded[0]).removeprefix(WORD_START)
            number = tokenizer.piece_to_id(inside)
            if not inside:
                encoded = encoded[1:]
            elif number != tokenizer.unk_id:
                encoded = [number, *encoded[1:]]
        ids = [*ids, tokenizer.mask_id, *encoded]
    return ids


def _filled(
    tokenizer: Tokenizer, parts: Sequence[str], pieces: Sequence[int], score: float
) -> FilledMask:
    """Puts pieces between the parts of a text; a piece inside a word joins the text before it."""
    text, words = parts[0], []
    is_sentencepiece = tokenizer.spec.kind == SENTENCEPIECE
    for number, part in zip(pieces, parts[1:]):
        piece = tokenizer.id_to_piece(number)
        word = piece.removeprefix(WORD_START if is_sentencepiece else CONTINUATION)
        if (word == piece) == is_sentencepiece:
            text = text.rstrip()
        elif is_sentencepiece and text[-1:].isalnum():
            text += " "
        text += word + part
        words.append(word)
    return FilledMask(tuple(words), score, text)
