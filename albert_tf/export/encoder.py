# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The encoder SavedModel of TF-Hub's text API, with the pretraining heads on request.

encoder = hub.KerasLayer(path, trainable=True)
encoder(preprocessor(["a sentence"]))["pooled_output"]
hub.load(path).mlm({**inputs, "masked_lm_positions": positions})["mlm_logits"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from albert_tf.export.saved_model import Reusable
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.fusion import portable_graph
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization import SENTENCEPIECE, Tokenizer

Inputs = Mapping[str, tf.Tensor]
Outputs = dict[str, Any]


def input_specs(*names: str) -> dict[str, tf.TensorSpec]:
    """The encoder's inputs and further ones, int32 [batch, length] of any size."""
    names = ("input_word_ids", "input_mask", "input_type_ids", *names)
    return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}


def reusable(
    function: Callable[[Inputs, bool], Outputs],
    weights: Mapping[str, tf.Variable],
    specs: Mapping[str, tf.TensorSpec],
) -> Reusable:
    """A function of the model's inputs and `training`, traced for both values of the second."""

    @tf.function(autograph=False)
    def call(inputs: Inputs, training: bool = False) -> Outputs:
        with portable_graph():
            return function(inputs, training)

    call.get_concrete_function(specs)
    call.get_concrete_function(specs, training=True)
    return Reusable(call, list(weights.values()))


def serving_signature(
    function: Callable[[Inputs, bool], Outputs], specs: Mapping[str, tf.TensorSpec]
) -> Any:
    """The function for serving: inputs by name, outputs without those that are lists."""

    @tf.function(autograph=False)
    def serve(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        with portable_graph():
            outputs = function(inputs, False)
        return {name: value for name, value in outputs.items() if not isinstance(value, list)}

    return serve.get_concrete_function(**specs)


def build_encoder(model: AlbertEncoder | AlbertPretrainer) -> tuple[Reusable, dict[str, Any]]:
    """Builds the SavedModel's root object of an encoder, for write_saved_model.

    The root takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S], and returns
    `pooled_output` [B, H], also as `default`, `sequence_output` [B, S, H] and `encoder_outputs`,
    the list of all layers' outputs. With a pretrainer it has two further objects, which return
    more: `mlm` takes `masked_lm_positions`, int32 [B, P], too and adds `mlm_logits` [B, P, V];
    `sop` adds `sop_logits` [B, 2]. Their heads' weights are no weights of the root.

    Args:
      model: in float32.

    Returns:
      The root and its signatures.
    """
    heads = model if isinstance(model, AlbertPretrainer) else None
    encoder = model.encoder if heads else model
    weights = encoder.named_weights()

    def encode(inputs: Inputs, training: bool) -> Outputs:
        outputs = encoder(inputs, training=training)
        return {"default": outputs["pooled_output"], **outputs}

    def predict_tokens(inputs: Inputs, training: bool) -> Outputs:
        outputs = encode(inputs, training)
        sequence, positions = outputs["sequence_output"], inputs["masked_lm_positions"]
        table = encoder.embeddings.word_embeddings
        logits = heads.mlm_head(sequence, table, positions, training=training)
        return {**outputs, "mlm_logits": logits}

    def predict_order(inputs: Inputs, training: bool) -> Outputs:
        outputs = encode(inputs, training)
        return {**outputs, "sop_logits": heads.sop_head(outputs["pooled_output"])}

    root = reusable(encode, weights, input_specs())
    if heads:
        specs = input_specs("masked_lm_positions")
        root.mlm = reusable(predict_tokens, {**weights, **heads.mlm_head.named_weights()}, specs)
        sop_weights = {**weights, **heads.sop_head.named_weights()}
        root.sop = reusable(predict_order, sop_weights, input_specs())
    return root, {"serving_default": serving_signature(encode, input_specs())}


def attach_tokenizer(root: Reusable, tokenizer: Tokenizer) -> dict[str, tuple[str, bytes]]:
    """Adds `do_lower_case` to the root, and returns the vocabulary as write_saved_model's assets.

    The asset is `sp_model_file` for SentencePiece and `vocab_file` for WordPiece.
    """
    spec = tokenizer.spec
    root.do_lower_case = tf.Variable(spec.lower_case, trainable=False, name="do_lower_case")
    name = "sp_model_file" if spec.kind == SENTENCEPIECE else "vocab_file"
    return {name: (spec.model_file, tokenizer.data)}
