# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The encoder SavedModel of TF-Hub's text API, with the pretraining heads on request.

encoder = hub.KerasLayer(path, trainable=True)
encoder(preprocessor(["a sentence"]))["pooled_output"]
hub.load(path).mlm({**inputs, "masked_lm_positions": positions})["mlm_logits"]
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.model_card import Kind, ModelFacts
from albert_tf.export.publish import Export, publish
from albert_tf.export.saved_model import Reusable
from albert_tf.export.self_check import Probe
from albert_tf.export.serving import input_specs
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.kernels.graph_mode import graph_mode
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, SPEC_FILE, Tokenizer

KIND = Kind(
    "ALBERT encoder",
    """import tensorflow_hub as hub

encoder = hub.KerasLayer("{name}", trainable=True)
encoder(dict(input_word_ids=ids, input_mask=mask, input_type_ids=types))["pooled_output"]""",
)
Inputs = Mapping[str, tf.Tensor]
Outputs = dict[str, Any]


def reusable(
    function: Callable[[Inputs, bool], Outputs],
    weights: Mapping[str, tf.Variable],
    specs: Mapping[str, tf.TensorSpec],
) -> Reusable:
    """A function of the model's inputs and `training`, traced for both values of the second."""

    @tf.function(autograph=False)
    def call(inputs: Inputs, training: bool = False) -> Outputs:
        with graph_mode(portable=True):
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
        with graph_mode(portable=True):
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

    # All functions call this graph: tracing and storing a deep encoder takes seconds and megabytes.
    @tf.function(autograph=False)
    def encode(inputs: Inputs, training: bool) -> Outputs:
        outputs = encoder(inputs, training=training)
        return {"default": outputs["pooled_output"], **outputs}

    def predict_tokens(inputs: Inputs, training: bool) -> Outputs:
        positions = inputs["masked_lm_positions"]
        outputs = encode({name: inputs[name] for name in input_specs()}, training)
        sequence = outputs["sequence_output"]
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


def probe_batches(config: AlbertConfig) -> list[dict[str, np.ndarray]]:
    """Random inputs of two batch sizes and two lengths; all rows but the first have padding."""
    generator = np.random.default_rng(0)
    longest = min(64, config.max_position_embeddings)
    batches = []
    for rows, length in itertools.product((1, 4), ((longest + 3) // 4, longest)):
        used = generator.integers(length // 2, length, [rows, 1])
        used[0] = length
        mask = (np.arange(length) < used).astype(np.int32)
        ids = generator.integers(config.vocab_size, size=mask.shape)
        types = (np.arange(length) >= used // 2) * (config.type_vocab_size > 1)
        batch = {"input_word_ids": ids * mask, "input_mask": mask, "input_type_ids": types * mask}
        batches.append({name: value.astype(np.int32) for name, value in batch.items()})
    return batches


def encoder_probes(model: AlbertEncoder | AlbertPretrainer) -> list[Probe]:
    """All outputs on `probe_batches`, and the heads' logits."""
    heads = model if isinstance(model, AlbertPretrainer) else None
    encoder, probes = model.encoder if heads else model, []
    for inputs in probe_batches(model.config):
        answers = _arrays(encoder(inputs))
        calls = [("", inputs, {**answers, "default": answers["pooled_output"]})]
        rows, length = inputs["input_mask"].shape
        if heads:
            positions = np.arange(rows * 3, dtype=np.int32).reshape([rows, 3]) % (length // 2)
            with_positions = {**inputs, "masked_lm_positions": positions}
            outputs = heads(with_positions)
            for name, given in (("mlm", with_positions), ("sop", inputs)):
                key = f"{name}_logits"
                calls.append((name, given, {key: outputs[key].numpy()}))
        probes += [Probe(given, want, name, f"{length} pieces") for name, given, want in calls]
    return probes


def _arrays(outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Outputs as arrays, those that are lists under name/0, name/1, …"""
    arrays = {}
    for name, value in outputs.items():
        parts = {f"{name}/{i}": v for i, v in enumerate(value)} if isinstance(value, list) else None
        arrays.update({k: v.numpy() for k, v in (parts or {name: value}).items()})
    return arrays


def encoder_export(
    model: AlbertEncoder | AlbertPretrainer, tokenizer: Tokenizer | None = None
) -> Export:
    """What `build_encoder` builds, with its probes and its assets.

    The vocabulary is `sp_model_file` or, of WordPiece, `vocab_file`; beside it lie tokenizer.json
    and albert_config.json, with which the SavedModel is a source for load_pretrained again.

    Args:
      model: in float32.
      tokenizer: None leaves out the vocabulary and `do_lower_case`.
    """
    root, signatures = build_encoder(model)
    assets = {"config_file": (CONFIG_FILE, _json(model.config.to_dict()))}
    if tokenizer:
        spec = tokenizer.spec
        root.do_lower_case = tf.Variable(spec.lower_case, trainable=False, name="do_lower_case")
        name = "sp_model_file" if spec.kind == SENTENCEPIECE else "vocab_file"
        assets[name] = (spec.model_file, tokenizer.data)
        assets["tokenizer_file"] = (SPEC_FILE, _json(spec.to_dict()))
    return Export(KIND, root, signatures, encoder_probes(model), assets)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode()


def write_hub_encoder(
    folder: str,
    config: AlbertConfig,
    tokenizer: Tokenizer | None,
    weights: Mapping[str, np.ndarray],
) -> None:
    """Writes weights by official name as an encoder SavedModel, with what heads they have."""
    heads = any(not name.startswith("bert/") for name in weights)
    model = (AlbertPretrainer if heads else AlbertEncoder)(config, dtype="float32")
    variables = model.named_weights()
    missing = sorted(set(variables) - set(weights))
    if missing:
        raise AlbertError(
            "A SavedModel holds the whole encoder and both pretraining heads or none; "
            f"{', '.join(missing)} are missing here."
        )
    for name, variable in variables.items():
        variable.assign(weights[name])
    facts = ModelFacts(
        name="albert_encoder",
        config=config,
        parameters=sum(weight.size for weight in weights.values()),
        tokenizer=tokenizer.spec if tokenizer else None,
    )
    publish(encoder_export(model, tokenizer), folder, facts)
