# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer`: one interface to SentencePiece and WordPiece, and its specification on disk."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.huggingface import tokenizer as hugging_face
from albert_tf.io import files
from albert_tf.io.json_values import from_json, short_repr
from albert_tf.pretrained.locate import SAVED_MODEL, locate
from albert_tf.settings import check_integer
from albert_tf.tokenization.sentencepiece_model import (
    SentencePieceModel,
    lower_symbols,
    whole_model,
)
from albert_tf.tokenization.wordpiece import WordPieceModel

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.tokenization.graph import SentencePieceGraph, WordPieceGraph

SENTENCEPIECE = "sentencepiece"
WORDPIECE = "wordpiece"
SPEC_FILE = "tokenizer.json"
#: Pieces of this probability have half of the largest weight.
_SIF = 1e-3


def find_vocabulary(folder: str) -> str | None:
    """Returns what `Tokenizer.from_file` reads in a model's folder, None if there is nothing.

    That is tokenizer.json, ours or Hugging Face's; or the only SentencePiece model, or else the
    only WordPiece vocabulary. In a SavedModel and in a preset of keras-hub these are among the
    assets.
    """
    preset = os.path.join(folder, "assets", "tokenizer", "vocabulary.spm")
    if files.exists(preset):
        return preset
    if files.exists(os.path.join(folder, SAVED_MODEL)):
        folder = os.path.join(folder, "assets")
    path = os.path.join(folder, SPEC_FILE)
    if files.exists(path):
        return path
    return files.find_only(folder, *hugging_face.VOCABULARY_FILES, "*.model", "*vocab*.txt")


@dataclasses.dataclass(frozen=True)
class TokenizerSpec:
    """Everything that determines the ids of a text.

    Attributes:
      kind: "sentencepiece" or "wordpiece".
      model_file: name of the vocabulary file, which lies beside the spec's JSON file.
      lower_case: whether to lower-case text.
      strip_accents: whether to drop combining characters after decomposition.
      vocab_size: number of pieces.
      sha256: hex digest of the vocabulary file.
    """

    kind: str
    model_file: str
    lower_case: bool
    strip_accents: bool
    vocab_size: int
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the spec as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "tokenizer spec") -> TokenizerSpec:
        """Inverse of to_dict; `source` names the values in errors.

        Raises:
          AlbertError: a key is unknown or missing, a value has the wrong type, or model_file is
            not a plain file name.
        """
        spec = from_json(cls, values, source)
        files.join_named("", spec.model_file, source)
        if spec.kind not in (SENTENCEPIECE, WORDPIECE):
            raise AlbertError(
                f"{source}: kind must be {SENTENCEPIECE!r} or {WORDPIECE!r}, "
                f"not {short_repr(spec.kind)}."
            )
        return spec


def checked_text(text: Any, what: str = "The text") -> str:
    """Returns the text; `what` names it in the error.

    Raises:
      AlbertError: it is not a string.
    """
    if not isinstance(text, str):
        hint = "; decode it first" if isinstance(text, bytes) else ""
        raise AlbertError(f"{what} must be a string, not {short_repr(text)}{hint}.")
    return text


def checked_texts(texts: Any, what: str = "texts") -> list[str]:
    """Returns a sequence of strings as a list; `what` names them in errors, in the plural.

    Raises:
      AlbertError: `texts` is not a sequence, or an item is not a string.
    """
    is_list = hasattr(texts, "__len__") and hasattr(texts, "__getitem__")
    if hasattr(texts, "itertuples"):  # Of pandas; its items are the names of its columns.
        raise AlbertError(f"The {what} are a data frame; give one of its columns.")
    if isinstance(texts, (str, bytes, Mapping)) or not is_list:
        raise AlbertError(f"The {what} must be a list of strings, not {short_repr(texts)}.")
    texts = list(texts)
    for number, text in enumerate(texts):
        checked_text(text, f"Number {number} (counted from 0) of the {what}")
    return texts


class Tokenizer:
    """Converts text to ids and back, with ALBERT's normalization.

    Attributes:
      spec: the TokenizerSpec.
      data: content of the vocabulary file.
      source: path of the file that it was read from.
      pieces: the pieces, in the order of their ids.
      vocab_size: number of pieces.
      digit_comma_parts: ids of SentencePiece pieces such as "2013,", which are split, with their
        parts' ids.
      symbols: ids of the symbols that were added to a WordPiece vocabulary, by their cleaned form.
      cls_id, sep_id, mask_id, pad_id, unk_id: ids of the special pieces.
      named_ids: the same by "pad", "unk", "cls", "sep" and "mask".
      special_ids: int32 [n], sorted: unk_id, and the ids that no text encodes to. Masking never
        uses them as random replacements.
      word_starts: bool [vocab_size]: whether a piece starts a word
        (google-research/albert create_pretraining_data._is_start_piece). [CLS], [SEP], [MASK] and
        padding count as words.
    """

    def __init__(self, spec: TokenizerSpec, data: bytes, source: str) -> None:
        """Builds a tokenizer; vocab_size and sha256 of `spec` are replaced by those of `data`.

        Raises:
          AlbertError: the vocabulary is of the wrong kind, or lacks a special piece.
        """
        self.data, self.source = data, source
        kind = SentencePieceModel if spec.kind == SENTENCEPIECE else WordPieceModel
        self._model = kind(data, source, spec.lower_case, spec.strip_accents)
        self.pieces = self._model.pieces
        self.vocab_size = len(self.pieces)
        self.digit_comma_parts = getattr(self._model, "replacements", {})
        self.symbols = getattr(self._model, "symbols", {})
        digest = hashlib.sha256(data).hexdigest()
        self.spec = dataclasses.replace(spec, vocab_size=self.vocab_size, sha256=digest)
        specials = [self._model.pad, self._model.unk, "[CLS]", "[SEP]", "[MASK]"]
        missing = [piece for piece in specials if piece not in self._model.ids]
        if missing:
            raise AlbertError(
                f"{source} lacks {', '.join(missing)}; train the vocabulary with "
                "albert train-sentencepiece, or give the file of an ALBERT release."
            )
        special = [self._model.ids[piece] for piece in specials]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = special
        self.named_ids = dict(zip(("pad", "unk", "cls", "sep", "mask"), special))
        never_text = filter(self._model.is_special, range(self.vocab_size))
        self.special_ids = np.array(sorted({*special, *never_text}), np.int32)
        self.word_starts = np.array([*map(self._model.starts_word, self.pieces)])
        self.word_starts[self.special_ids] = True

    @classmethod
    def from_file(cls, path: str, lower_case: bool | None = None) -> Tokenizer:
        """Loads a SentencePiece .model, a WordPiece vocab.txt, or a saved tokenizer.json.

        Args:
          path: any path that tf.io.gfile can read; a model's folder, archive or name, for its own
            vocabulary (see `albert_tf.pretrained.locate`). Hugging Face's tokenizer.json is read
            only if neither spiece.model nor vocab.txt is beside it. A vocabulary is read with the
            settings in the tokenizer's files beside it.
          lower_case: whether to lower-case text, and user-defined symbols; by default as in the
            files beside the vocabulary, else True. Accents are dropped by default
            for SentencePiece (in the official code also from cased text), and with `lower_case` for
            WordPiece.

        Raises:
          AlbertError: the file is missing or of the wrong kind, `lower_case` contradicts our
            tokenizer.json, or a model has no vocabulary or cannot be downloaded.
        """
        if not isinstance(lower_case, (bool, type(None))):
            raise AlbertError(f"`lower_case`={short_repr(lower_case)} must be True, False or None.")
        path, model = locate(path, "vocabulary", weights=False), path
        if files.isdir(path):
            path = find_vocabulary(path)
            if path is None:
                raise AlbertError(
                    f"{model} has no vocabulary ({SPEC_FILE}, *.model, vocab.txt), or more than "
                    "one; give the file."
                )
        if path.endswith(".json"):
            values = files.read_object(path, "tokenizer spec")
            if hugging_face.PIPELINE_KEY not in values:
                spec = TokenizerSpec.from_dict(values, path)
                if lower_case not in (None, spec.lower_case):
                    raise AlbertError(
                        f"{path} says `lower_case`={spec.lower_case}, but {lower_case} was given."
                    )
                vocabulary = files.join_named(os.path.dirname(path), spec.model_file, path)
                data = files.read_bytes(vocabulary, "vocabulary")
                if hashlib.sha256(data).hexdigest() != spec.sha256:
                    raise AlbertError(f"{vocabulary} is not the file that {path} was written for.")
                return cls(spec, data, vocabulary)
            names = hugging_face.VOCABULARY_FILES
            path = files.find_only(os.path.dirname(path), *names) or path
        file = hugging_face.read_vocabulary_file(path)
        data, strip_accents = file.data, file.strip_accents
        # A SentencePiece model is a protocol buffer, and its float scores contain NUL bytes.
        kind = SENTENCEPIECE if file.name.endswith(".model") or b"\0" in data else WORDPIECE
        lower_case = file.lower_case if lower_case is None else lower_case
        if strip_accents is None:
            strip_accents = lower_case or kind == SENTENCEPIECE
        if lower_case and kind == SENTENCEPIECE:
            data = lower_symbols(data)
        return cls(TokenizerSpec(kind, file.name, lower_case, strip_accents, 0, ""), data, path)

    def save(self, folder: str) -> str:
        """Writes the vocabulary file and tokenizer.json to `folder`; returns the latter's path."""
        folder = files.path_of(folder, "tokenizer's folder")
        files.write_bytes(os.path.join(folder, self.spec.model_file), self.data)
        path = os.path.join(folder, SPEC_FILE)
        files.write_json(path, self.spec.to_dict())
        return path

    def whole_data(self) -> bytes:
        """Returns the vocabulary for programs that do nothing else to a text; see `whole_model`."""
        if self.spec.kind == WORDPIECE:
            return self.data
        spec = self.spec
        return whole_model(self.data, spec.lower_case, spec.strip_accents, self.digit_comma_parts)

    def piece_weights(self) -> np.ndarray:
        """Returns the weight of each piece in means, float32 [vocab_size]: near 1 for rare ones.

        It is a / (a + p), where p is the piece's probability in a unigram SentencePiece model, 1
        for special pieces, and a is 0.001 (Arora et al. 2017, section 3). In other vocabularies,
        which have no probabilities, nearly all weights are 1.
        """
        frequencies = getattr(self._model, "frequencies", np.zeros(self.vocab_size))
        return (_SIF / (_SIF + frequencies)).astype(np.float32)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, without [CLS] and [SEP].

        Raises:
          AlbertError: the text is not a string.
        """
        return self.encode_batch([checked_text(text)])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text; faster than `encode` of each.

        Raises:
          AlbertError: the texts are not a list of strings.
        """
        return self._model.encode([*map(files.valid_text, checked_texts(texts))])

    def graph(self) -> SentencePieceGraph | WordPieceGraph:
        """Returns a callable with the same ids; a SavedModel's object has to track it."""
        # tensorflow_text takes a while to import.
        from albert_tf.tokenization import graph

        is_pieces = self.spec.kind == SENTENCEPIECE
        return graph.SentencePieceGraph(self) if is_pieces else graph.WordPieceGraph(self)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[TokenizerSpec, bytes, str]]:
        # For worker processes. The function below cannot be sent to them.
        return Tokenizer, (self.spec, self.data, self.source)

    @functools.cached_property
    def _encode_with_offsets(self) -> tf.types.experimental.GenericFunction:
        import tensorflow as tf  # Builders of records do without it.

        # The model is made inside, because Keras' `clear_session` would delete one that is outside.
        return tf.function(
            lambda texts: self.graph().encode_with_offsets(texts),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        """Yields the ids, starts and ends of each text, int32 [3, tokens].

        The i-th id stands for text[starts[i]:ends[i]] of the original text. Parts of one character
        ("½" is three pieces) share its span; a dropped accent belongs to the letter before it; a
        piece that stands for whitespace alone has an empty span before the next piece.

        The ids are those of `graph`, and so of a SavedModel.

        Raises:
          AlbertError: the texts are not a list of strings.
        """
        import tensorflow as tf

        texts = list(map(files.valid_text, checked_texts(texts)))
        while texts:
            # Many short texts share the cost of a call, and long ones do not fill the memory.
            size = np.searchsorted(np.cumsum([len(text) for text in texts[:512]]), 1 << 19) + 1
            columns = self._encode_with_offsets(tf.constant(texts[:size]))
            limits = columns[0].row_limits()[:-1]
            values = np.stack([column.values.numpy() for column in columns])
            yield from np.split(values.astype(np.int32), limits.numpy(), axis=1)
            texts = texts[size:]

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of `text`, with the unknown piece for text outside the vocabulary.

        Raises:
          AlbertError: the text is not a string.
        """
        return [self.pieces[i] for i in self.encode(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`.

        Raises:
          AlbertError: `ids` is not a list of ids of the vocabulary.
        """
        if not np.iterable(ids):
            raise AlbertError(f"The ids must be a list of integers, not {short_repr(ids)}.")
        last = self.vocab_size - 1
        return self._model.decode([check_integer("id", i, 0, last) for i in ids])

    def id_to_piece(self, i: int) -> str:
        """Returns the piece of an id.

        Raises:
          AlbertError: the vocabulary has no such id.
        """
        return self.pieces[check_integer("id", i, 0, self.vocab_size - 1)]

    def piece_to_id(self, piece: str) -> int:
        """Returns the id of a piece; unk_id if the vocabulary lacks it."""
        return self._model.ids.get(piece, self.unk_id)
