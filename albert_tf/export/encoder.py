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
from albert_tf.export.saved_model import ReusableSavedModel
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
) -> ReusableSavedModel:
    """Wraps a function of the model's inputs and `training`, traced for both values."""

    @tf.function(autograph=False)
    def call(inputs: Inputs, training: bool = False) -> Outputs:
        with graph_mode(portable=True, served=not training):
            return function(inputs, training)

    call.get_concrete_function(specs)
    call.get_concrete_function(specs, training=True)
    return ReusableSavedModel(call, list(weights.values()))


def serving_signature(
    function: Callable[[Inputs, bool], Outputs],
    specs: Mapping[str, tf.TensorSpec],
    served: bool = True,
) -> Any:
    """Returns the serving function: inputs by name, and outputs without lists.

    Args:
      function: of the inputs and `training`.
      specs: of the inputs.
      served: see GraphMode; not for TensorFlow Lite, which has fusions of its own.
    """

    @tf.function(autograph=False)
    def serve(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        with graph_mode(portable=True, served=served):
            outputs = function(inputs, False)
        return {name: value for name, value in outputs.items() if not isinstance(value, list)}

    return serve.get_concrete_function(**specs)


def build_encoder(
    model: AlbertEncoder | AlbertPretrainer,
) -> tuple[ReusableSavedModel, dict[str, Any]]:
    """Builds the SavedModel's root object and the signatures of an encoder, all float32.

    The root takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S], and returns
    `pooled_output` [B, H], also as `default`, `sequence_output` [B, S, H] and `encoder_outputs`,
    the list of all layers' outputs. With a pretrainer, the root has two more objects: `mlm` also
    takes `masked_lm_positions`, int32 [B, P], and adds `mlm_logits` [B, P, V]; `sop` adds
    `sop_logits` [B, 2]. The root's weights do not include those of the heads.
    """
    heads = model if isinstance(model, AlbertPretrainer) else None
    encoder = model.encoder if heads else model
    weights = encoder.named_weights()

    # All functions share this graph: a deep one takes seconds to trace and megabytes to store.
    @tf.function(autograph=False)
    def encode(inputs: Inputs, training: bool) -> Outputs:
        outputs = encoder(inputs, training=training)
        outputs = tf.nest.map_structure(lambda y: tf.cast(y, tf.float32), outputs)
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
    """Returns random inputs of two batch sizes and lengths; all rows but the first are padded."""
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
    """Returns probes of all outputs on `probe_batches`, and of the heads' logits."""
    heads = model if isinstance(model, AlbertPretrainer) else None
    encoder, probes = model.encoder if heads else model, []
    for inputs in probe_batches(model.config):
        rows, length = inputs["input_mask"].shape
        label = f"{length} pieces"
        outputs = _arrays(encoder(inputs))
        expected = {**outputs, "default": outputs["pooled_output"]}
        probes.append(Probe(inputs, expected, length=label))
        if heads:
            positions = np.arange(rows * 3, dtype=np.int32).reshape([rows, 3]) % (length // 2)
            with_positions = {**inputs, "masked_lm_positions": positions}
            outputs = heads(with_positions)
            for name, taken in (("mlm", with_positions), ("sop", inputs)):
                logits = {f"{name}_logits": outputs[f"{name}_logits"].numpy()}
                probes.append(Probe(taken, logits, name, label))
    return probes


def _arrays(outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns outputs as arrays; the entries of lists become name/0, name/1, …"""
    arrays = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            arrays.update({f"{name}/{i}": entry.numpy() for i, entry in enumerate(value)})
        else:
            arrays[name] = value.numpy()
    return arrays


def encoder_export(
    model: AlbertEncoder | AlbertPretrainer, tokenizer: Tokenizer | None = None
) -> Export:
    """Returns the export of an encoder, with probes and assets.

    The vocabulary is the asset `sp_model_file` or, for WordPiece, `vocab_file`. tokenizer.json and
    albert_config.json beside it let load_pretrained read the SavedModel.

    Args:
      model: the encoder, or with its heads.
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
    """Writes weights by official name as an encoder SavedModel, with both heads or none.

    Raises:
      AlbertError: weights of the encoder or of a head are missing.
    """
    heads = any(not name.startswith("bert/") for name in weights)
    model = (AlbertPretrainer if heads else AlbertEncoder)(config, dtype="float32")
    variables = model.named_weights()
    missing = sorted(set(variables) - set(weights))
    if missing:
        raise AlbertError(
            "A SavedModel holds the whole encoder and both pretraining heads or none; "
            f"{', '.join(missing)} are missing."
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
