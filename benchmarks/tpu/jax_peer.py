# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A plain JAX version of the pretraining step, to compare compiled programs with.

  python benchmarks/tpu/jax_peer.py step.json --topology=v5e:2x2

ALBERT as one would write it first with JAX: dense layers as in flax.linen (float32 weights, cast
where they are used), attention by einsum, gradients by `jax.grad`, LAMB by the formulas of
optax.lamb after clipping by the global norm. It computes what our step does: masked LM on the
masked positions and sentence order, bfloat16 activations, softmax, layer normalisation and losses
in float32, no dropout, the same metrics. `step.json` has `config` (of albert_config.json),
`seq_length`, `rows` and `predictions`. Runs in the compiler's environment and prints the line of
JSON that compiler.py prints. Uses the standard library, JAX and NumPy only.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import compiler  # Before JAX, which reads what it sets. Beside this file, which runs as a script.
import jax
import jax.numpy as jnp

_EPSILON = 1e-12
_BETA_1, _BETA_2, _LAMB_EPSILON, _DECAY, _RATE = 0.9, 0.999, 1e-6, 0.01, 1e-4

Weights = dict[str, jax.Array]


def weight_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all weights of a model with one group of shared weights."""
    vocabulary, e, h = config["vocab_size"], config["embedding_size"], config["hidden_size"]
    f = config["intermediate_size"]
    shapes = {
        "words": (vocabulary, e),
        "types": (config["type_vocab_size"], e),
        "positions": (config["max_position_embeddings"], e),
        "masked_lm.bias": (vocabulary,),
    }
    for name, inputs, outputs in (
        ("projection", e, h),
        *((name, h, h) for name in ("query", "key", "value", "output", "pooler")),
        ("inner", h, f),
        ("outer", f, h),
        ("transform", h, e),
        ("order", h, 2),
    ):
        shapes[f"{name}.kernel"], shapes[f"{name}.bias"] = (inputs, outputs), (outputs,)
    for name, size in (("embedding_norm", e), ("norm_1", h), ("norm_2", h), ("head_norm", e)):
        shapes[f"{name}.scale"] = shapes[f"{name}.bias"] = (size,)
    return shapes


def _dense(x: jax.Array, weights: Weights, name: str) -> jax.Array:
    kernel, bias = (weights[f"{name}.{part}"].astype(x.dtype) for part in ("kernel", "bias"))
    return x @ kernel + bias


def _norm(x: jax.Array, weights: Weights, name: str) -> jax.Array:
    y = x.astype(jnp.float32)
    centred = y - y.mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + _EPSILON)
    return (y * weights[f"{name}.scale"] + weights[f"{name}.bias"]).astype(x.dtype)


def _attention(x: jax.Array, bias: jax.Array, weights: Weights, heads: int) -> jax.Array:
    rows, length, size = x.shape
    query, key, value = (
        _dense(x, weights, name).reshape(rows, length, heads, size // heads)
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqnd,bknd->bnqk", query * (size // heads) ** -0.5, key)
    probs = jax.nn.softmax(scores.astype(jnp.float32) + bias).astype(x.dtype)
    context = jnp.einsum("bnqk,bknd->bqnd", probs, value).reshape(x.shape)
    return _dense(context, weights, "output")


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    of_labels = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return jax.nn.logsumexp(logits, -1) - of_labels


def loss_and_metrics(
    weights: Weights, batch: dict[str, jax.Array], config: dict[str, Any]
) -> tuple[jax.Array, jax.Array]:
    """Returns the loss, and both losses and accuracies in a vector."""
    ids = batch["input_word_ids"]
    x = weights["words"][ids] + weights["types"][batch["input_type_ids"]]
    x = _norm(x + weights["positions"][: ids.shape[1]], weights, "embedding_norm")
    x = _dense(x.astype(jnp.bfloat16), weights, "projection")
    bias = (batch["input_mask"][:, None, None].astype(jnp.float32) - 1) * 10000
    for _ in range(config["num_hidden_layers"]):
        attended = _attention(x, bias, weights, config["num_attention_heads"])
        x = _norm(x + attended, weights, "norm_1")
        inner = jax.nn.gelu(_dense(x, weights, "inner"), approximate=True)
        x = _norm(x + _dense(inner, weights, "outer"), weights, "norm_2")
    pooled = jnp.tanh(_dense(x[:, 0], weights, "pooler").astype(jnp.float32))
    order = _dense(pooled, weights, "order")
    masked = jnp.take_along_axis(x, batch["masked_lm_positions"][..., None], 1)
    masked = _norm(jax.nn.gelu(_dense(masked, weights, "transform")), weights, "head_norm")
    logits = masked @ weights["words"].astype(x.dtype).T
    logits = logits.astype(jnp.float32) + weights["masked_lm.bias"]
    labels, counted = batch["masked_lm_ids"], batch["masked_lm_weights"]
    total = counted.sum() + 1e-5
    masked_loss = (_cross_entropy(logits, labels) * counted).sum() / total
    masked_right = ((logits.argmax(-1) == labels) * counted).sum() / total
    order_labels = batch["next_sentence_labels"].reshape(-1)
    order_loss = _cross_entropy(order, order_labels).mean()
    order_right = (order.argmax(-1) == order_labels).mean()
    metrics = jnp.stack([masked_loss, masked_right, order_loss, order_right])
    return masked_loss + order_loss, metrics


def _lamb(name: str, weight: jax.Array, gradient: jax.Array, m: jax.Array, v: jax.Array) -> tuple:
    m = _BETA_1 * m + (1 - _BETA_1) * gradient
    v = _BETA_2 * v + (1 - _BETA_2) * gradient * gradient
    update = m / (jnp.sqrt(v) + _LAMB_EPSILON)
    if "bias" in name or "norm" in name:
        return weight - _RATE * update, m, v
    update += _DECAY * weight
    norms = jnp.linalg.norm(weight), jnp.linalg.norm(update)
    ratio = jnp.where((norms[0] > 0) & (norms[1] > 0), norms[0] / norms[1], 1.0)
    return weight - _RATE * ratio * update, m, v


def train_step(
    state: dict[str, tuple], batch: dict[str, jax.Array], config: dict[str, Any]
) -> tuple[dict[str, tuple], jax.Array]:
    """Returns the new (weight, m, v) by name, and the metrics."""
    weights = {name: values[0] for name, values in state.items()}
    gradients, metrics = jax.grad(loss_and_metrics, has_aux=True)(weights, batch, config)
    norm = jnp.sqrt(sum((g * g).sum() for g in gradients.values()))
    scale = jnp.minimum(1.0, 1.0 / norm)
    new = {
        name: _lamb(name, weight, gradients[name] * scale, m, v)
        for name, (weight, m, v) in state.items()
    }
    return new, jnp.append(metrics, norm)


def batch_shapes(rows: int, length: int, predictions: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the tensors of a batch."""
    tokens, masked = (rows, length), (rows, predictions)
    names = {
        tokens: ("input_word_ids", "input_mask", "input_type_ids"),
        masked: ("masked_lm_positions", "masked_lm_ids"),
        (rows,): ("next_sentence_labels",),
    }
    shapes = {
        name: jax.ShapeDtypeStruct(shape, jnp.int32) for shape, of in names.items() for name in of
    }
    weights = jax.ShapeDtypeStruct(masked, jnp.float32)
    return {**shapes, "masked_lm_weights": weights}


def compile_peer(options: argparse.Namespace) -> Any:
    """Returns the executable of the step."""
    with open(options.program, encoding="utf-8") as f:
        step = json.load(f)
    sharding = jax.sharding.SingleDeviceSharding(compiler.devices(options)[0])
    state = {
        name: (jax.ShapeDtypeStruct(shape, jnp.float32),) * 3
        for name, shape in weight_shapes(step["config"]).items()
    }
    batch = batch_shapes(step["rows"], step["seq_length"], step["predictions"])
    function = jax.jit(
        lambda state, batch: train_step(state, batch, step["config"]),
        in_shardings=sharding,
        out_shardings=sharding,
        donate_argnums=0,
    )
    return function.lower(state, batch).compile().runtime_executable()


if __name__ == "__main__":
    OPTIONS = compiler.parser("The step as JSON.").parse_args()
    print(json.dumps(compiler.described(lambda: compile_peer(OPTIONS), OPTIONS)))
