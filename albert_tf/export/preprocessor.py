# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The preprocessor SavedModel of TF-Hub's text API: makes the encoder's inputs from sentences.

  preprocessor = hub.load(path)
  preprocessor(["one sentence", "another"], seq_length=64)
  tokens = [preprocessor.tokenize(first), preprocessor.tokenize(second)]
  preprocessor.bert_pack_inputs(tokens, seq_length=128)
  preprocessor.tokenize.get_special_tokens_dict()["mask_id"]

Use it outside a distribution strategy's scope, for example in tf.data pipelines.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.export.model_card import Kind
from albert_tf.export.packing import merge_words, pack
from albert_tf.export.saved_model import ReusableSavedModel
from albert_tf.export.self_check import Probe
from albert_tf.export.text_probes import as_bytes, text_batches
from albert_tf.export.tokenizer_graph import tokenizer_graph
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH, join_segments, pad_sequences
from albert_tf.tokenization.tokenizer import Tokenizer

KIND = Kind(
    "ALBERT preprocessor",
    """import tensorflow_hub as hub
import tensorflow_text  # registers the operations that read text

preprocessor = hub.load("{name}")
preprocessor(["A text."], seq_length=64)""",
)
_SENTENCES = tf.TensorSpec([None], tf.string, "sentences")
_SEQ_LENGTH = tf.TensorSpec([], tf.int32, "seq_length")


def build_preprocessor(
    tokenizer: Tokenizer, seq_length: int = 128
) -> tuple[ReusableSavedModel, dict[str, Any]]:
    """Builds the SavedModel's root object and the signatures of a preprocessor.

    The root takes string [B] (`sentences`) and returns `input_word_ids`, `input_mask` and
    `input_type_ids`, int32 [B, seq_length]. It has `tokenize`, with `get_special_tokens_dict`, and
    `bert_pack_inputs`; see the module.

    Args:
      tokenizer: of the encoder.
      seq_length: the default for callers.

    Raises:
      AlbertError: seq_length is too small.
    """
    if seq_length < MIN_SEQ_LENGTH:
        raise AlbertError(f"seq_length={seq_length} must be at least {MIN_SEQ_LENGTH}.")
    graph = tokenizer_graph(tokenizer)
    sizes = {
        "vocab_size": tokenizer.vocab_size,
        "start_of_sequence_id": tokenizer.cls_id,
        "end_of_segment_id": tokenizer.sep_id,
        "padding_id": tokenizer.pad_id,
        "mask_id": tokenizer.mask_id,
    }

    # The functions below are traced for every combination of arguments. These two, which do the
    # work, have their own graphs, so that each is stored once.
    @tf.function(autograph=False, input_signature=[_SENTENCES])
    def tokenize(sentences: tf.Tensor) -> tf.RaggedTensor:
        return graph(sentences)

    @tf.function(autograph=False)
    def pack_flat(segments: list[tf.RaggedTensor], seq_length: tf.Tensor) -> dict[str, tf.Tensor]:
        return pack(segments, seq_length, tokenizer)

    @tf.function(autograph=False)
    def bert_pack_inputs(
        inputs: list[tf.RaggedTensor], seq_length: Any = seq_length
    ) -> dict[str, tf.Tensor]:
        packed = pack_flat([merge_words(ids) for ids in inputs], tf.convert_to_tensor(seq_length))
        static = [None, seq_length if isinstance(seq_length, int) else None]
        return {name: tf.ensure_shape(value, static) for name, value in packed.items()}

    @tf.function(autograph=False)
    def preprocess(sentences: tf.Tensor, seq_length: Any = seq_length) -> dict[str, tf.Tensor]:
        return bert_pack_inputs([tokenize(sentences)], seq_length)

    @tf.function(autograph=False, input_signature=[])
    def get_special_tokens_dict() -> dict[str, tf.Tensor]:
        return {name: tf.constant(value, tf.int32) for name, value in sizes.items()}

    root = ReusableSavedModel(preprocess)
    root.tokenize = ReusableSavedModel(tokenize)
    root.tokenize.graph = graph
    root.tokenize.get_special_tokens_dict = ReusableSavedModel(get_special_tokens_dict)
    root.bert_pack_inputs = ReusableSavedModel(bert_pack_inputs)
    for rank in (1, 2):
        tokens = tf.RaggedTensorSpec([None] * (rank + 1), tf.int32, ragged_rank=rank)
        for segments in ([tokens], [tokens, tokens]):
            bert_pack_inputs.get_concrete_function(segments)
            bert_pack_inputs.get_concrete_function(segments, seq_length=_SEQ_LENGTH)
    serving = preprocess.get_concrete_function(_SENTENCES)
    preprocess.get_concrete_function(_SENTENCES, seq_length=_SEQ_LENGTH)
    return root, {"serving_default": serving}


def preprocessor_probes(tokenizer: Tokenizer, seq_length: int) -> list[Probe]:
    """Returns probes with sentences that the host's tokenizer encodes."""
    probes = []
    for length, texts in text_batches():
        encoded = tokenizer.encode_batch(texts)
        sequences = [join_segments(tokenizer, ids[: seq_length - 2]) for ids in encoded]
        expected = pad_sequences(tokenizer, sequences, length=seq_length)
        probes.append(Probe({"sentences": as_bytes(texts)}, expected, length=length))
    return probes
