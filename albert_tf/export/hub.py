# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModels of TF-Hub's text API: the encoder, also with pretraining heads; the preprocessor.

  preprocessor, encoder = hub.load(path), hub.KerasLayer(path, trainable=True)
  encoder(preprocessor(["one sentence", "another"], seq_length=64))["pooled_output"]
  tokens = [preprocessor.tokenize(first), preprocessor.tokenize(second)]
  inputs = preprocessor.bert_pack_inputs(tokens, seq_length=128)
  preprocessor.tokenize.get_special_tokens_dict()["mask_id"]
  hub.load(path).mlm({**inputs, "masked_lm_positions": positions})["mlm_logits"]

Use a preprocessor outside a distribution strategy's scope, for example in tf.data pipelines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.probe_process import arrays
from albert_tf.export.saved_model import Export, ReusableSavedModel
from albert_tf.export.self_check import Probe
from albert_tf.export.text_form import (
    SENTENCES,
    merge_words,
    pack,
    strings,
    text_example,
    text_probes,
)
from albert_tf.io.files import json_bytes
from albert_tf.modeling.encoder import INPUTS, AlbertEncoder
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH, join_segments, pad_sequences
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, SPEC_FILE, Tokenizer
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Batch, Tensors

ENCODER_TITLE = "ALBERT encoder"
_EXAMPLE = """import tensorflow_hub as hub

encoder = hub.KerasLayer("{name}", trainable=True)
encoder(dict(input_word_ids=ids, input_mask=mask, input_type_ids=types))["pooled_output"]"""
_LENGTH = tf.TensorSpec([], tf.int32, "seq_length")


def input_specs(*names: str) -> dict[str, tf.TensorSpec]:
    """Returns specs of the encoder's inputs and further ones, int32 [None, None]."""
    return {name: tf.TensorSpec([None, None], tf.int32, name) for name in (*INPUTS, *names)}


def _trainable(
    function: Callable[[Batch, bool], dict[str, Any]],
    weights: Mapping[str, tf.Variable],
    *more_inputs: str,
) -> ReusableSavedModel:
    """Wraps a function of the model's inputs and `training`, traced for both values."""
    specs = input_specs(*more_inputs)

    @tf.function(autograph=False)
    def call(inputs, training=False) -> dict[str, Any]:
        with graph_mode(GraphMode.PLAIN if training else GraphMode.SERVED):
            return function(inputs, training)

    call.get_concrete_function(specs)
    call.get_concrete_function(specs, training=True)
    return ReusableSavedModel(call, weights.values())


def encoder_export(
    model: AlbertEncoder | AlbertPretrainer,
    tokenizer: Tokenizer,
    exact: AlbertEncoder | AlbertPretrainer | None = None,
    precision: str = FLOAT32,
) -> Export:
    """Returns the export of an encoder, or of one with heads, in a precision.

    It is to be compared with the `exact` model in float32, by default the model itself. Its outputs
    are float32.

    The root takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S], and returns
    `pooled_output` [B, H], also as `default`, `sequence_output` [B, S, H] and `encoder_outputs`,
    the list of all layers' outputs. With a pretrainer, the root has another object, `mlm`, which
    also takes `masked_lm_positions`, int32 [B, P], and adds `mlm_logits` [B, P, V] and `sop_logits`
    [B, 2]. The root's weights do not include those of the heads.

    The vocabulary is the asset `sp_model_file` or, for WordPiece, `vocab_file`. tokenizer.json and
    albert_config.json beside it let load_pretrained read the SavedModel.
    """
    heads = model if isinstance(model, AlbertPretrainer) else None
    encoder = model.encoder if heads else model

    # All functions share this graph: a deep one takes seconds to trace and megabytes to store.
    @tf.function(autograph=False)
    def encode(inputs, training) -> dict[str, Any]:
        outputs = encoder(inputs, training=training)
        outputs = tf.nest.map_structure(lambda y: tf.cast(y, tf.float32), outputs)
        return {"default": outputs["pooled_output"], **outputs}

    def predict(inputs, training) -> dict[str, Any]:
        # The gradient computes with the positions; with int32 it would run on the CPU.
        positions = tf.cast(inputs["masked_lm_positions"], tf.int64)
        outputs = encode({name: inputs[name] for name in INPUTS}, training)
        sequence = tf.gather(outputs["sequence_output"], positions, batch_dims=1)
        return {
            **outputs,
            "mlm_logits": heads.mlm_head(sequence, encoder.embeddings.word_embeddings),
            "sop_logits": heads.sop_head(outputs["pooled_output"]),
        }

    root = _trainable(encode, encoder.named_weights())
    if heads:
        root.mlm = _trainable(predict, heads.named_weights(), "masked_lm_positions")

    @tf.function(autograph=False)
    def serve(**inputs) -> Tensors:
        outputs = root.__call__(inputs)
        return {name: x for name, x in outputs.items() if name != "encoder_outputs"}

    spec = tokenizer.spec
    root.do_lower_case = tf.Variable(spec.lower_case, trainable=False, name="do_lower_case")
    assets = {
        "config_file": (CONFIG_FILE, json_bytes(model.config.to_dict())),
        "tokenizer_file": (SPEC_FILE, json_bytes(spec.to_dict())),
        "sp_model_file" if spec.kind == SENTENCEPIECE else "vocab_file": (
            spec.model_file,
            tokenizer.data,
        ),
    }
    return Export(
        ENCODER_TITLE,
        _EXAMPLE,
        root,
        {"serving_default": serve.get_concrete_function(**input_specs())},
        _encoder_probes(exact or model),
        assets,
        precision=precision,
    )


def probe_batches(config: AlbertConfig) -> list[dict[str, np.ndarray]]:
    """Returns random inputs of two batch sizes and lengths; all rows but the first are padded."""
    generator = np.random.default_rng(0)
    longest = min(64, config.max_position_embeddings)
    batches = []
    for rows, length in itertools.product((1, 4), ((longest + 3) // 4, longest)):
        row, position = np.indices([rows, length], np.int32)
        mask = (position < length - row).astype(np.int32)
        ids = generator.integers(config.vocab_size, size=mask.shape, dtype=np.int32)
        types = (position >= length // 2) * mask * (config.type_vocab_size > 1)
        batches.append({"input_word_ids": ids * mask, "input_mask": mask, "input_type_ids": types})
    return batches


def _encoder_probes(model: AlbertEncoder | AlbertPretrainer) -> list[Probe]:
    """Returns probes of all outputs on `probe_batches`, and of the heads' logits."""
    probes = []
    for inputs in probe_batches(model.config):
        expected = arrays(getattr(model, "encoder", model)(inputs))
        probes.append(Probe(inputs, {**expected, "default": expected["pooled_output"]}))
        if isinstance(model, AlbertPretrainer):
            rows, length = inputs["input_mask"].shape
            positions = np.array([[0, 1, length // 2]] * rows, np.int32)
            with_positions = {**inputs, "masked_lm_positions": positions}
            probes.append(Probe(with_positions, arrays(model(with_positions)), "mlm"))
    return probes


def preprocessor_export(tokenizer: Tokenizer, seq_length: int) -> Export:
    """Returns the export of a preprocessor.

    The root takes string [B] (`sentences`) and returns `input_word_ids`, `input_mask` and
    `input_type_ids`, int32 [B, seq_length]. It has `tokenize`, with `get_special_tokens_dict`, and
    `bert_pack_inputs`; see the module. `seq_length` is the default for callers.

    Raises:
      AlbertError: seq_length is too small.
    """
    if seq_length < MIN_SEQ_LENGTH:
        raise AlbertError(f"seq_length={seq_length} must be at least {MIN_SEQ_LENGTH}.")
    graph, sentences_spec = tokenizer.graph(), strings("sentences")

    @tf.function(autograph=False, input_signature=[sentences_spec])
    def tokenize(sentences) -> tf.RaggedTensor:
        return graph(sentences)

    @tf.function(autograph=False)
    def pack_inputs(inputs, seq_length=seq_length) -> Tensors:
        return pack([merge_words(ids) for ids in inputs], seq_length, tokenizer)

    @tf.function(autograph=False)
    def call(sentences, seq_length=seq_length) -> Tensors:
        return pack_inputs([tokenize(sentences)], seq_length)

    @tf.function(autograph=False, input_signature=[])
    def get_special_tokens_dict() -> Tensors:
        ids = {
            "vocab_size": tokenizer.vocab_size,
            "start_of_sequence_id": tokenizer.cls_id,
            "end_of_segment_id": tokenizer.sep_id,
            "padding_id": tokenizer.pad_id,
            "mask_id": tokenizer.mask_id,
        }
        return {name: tf.constant(value, tf.int32) for name, value in ids.items()}

    for rank in (1, 2):
        tokens = tf.RaggedTensorSpec([None] * (rank + 1), tf.int32, ragged_rank=rank)
        for segments in ([tokens], [tokens, tokens]):
            pack_inputs.get_concrete_function(segments)
            pack_inputs.get_concrete_function(segments, seq_length=_LENGTH)
    call.get_concrete_function(sentences_spec, seq_length=_LENGTH)
    root = ReusableSavedModel(call)
    root.tokenizer = graph
    root.bert_pack_inputs = ReusableSavedModel(pack_inputs)
    root.tokenize = ReusableSavedModel(tokenize)
    root.tokenize.graph = graph  # It may be used without the root.
    root.tokenize.get_special_tokens_dict = ReusableSavedModel(get_special_tokens_dict)

    def expected(sentences) -> dict[str, np.ndarray]:
        encoded = tokenizer.encode_batch(sentences)
        sequences = [join_segments(tokenizer, ids[: seq_length - 2]) for ids in encoded]
        return pad_sequences(tokenizer, sequences, length=seq_length)

    return Export(
        "ALBERT preprocessor",
        text_example('preprocessor(["A text."], seq_length=64)'),
        root,
        {"serving_default": call.get_concrete_function(sentences_spec)},
        text_probes({"sentences": SENTENCES}, expected),
    )
