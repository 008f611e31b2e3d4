# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertEncoder: embeddings, transformer and pooler as one Keras model; and sentence vectors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.tensorflow_import import check_not_forked
from albert_tf.keras2 import check_same_keras, keras
from albert_tf.modeling.attention import Select, additive_mask
from albert_tf.modeling.kernels.dense import affine, layer_norm
from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.kernels.graph_mode import GraphMode, current_mode
from albert_tf.modeling.layers import Inputs, Outputs, Policy, WeightedLayer, dimension
from albert_tf.modeling.transformer import Transformer

#: Registers a model, so that Keras finds its class by name.
serializable = keras.utils.register_keras_serializable("albert_tf")

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
#: Names of the encoder's inputs in other libraries.
_OTHER_NAMES = {
    "input_ids": "input_word_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "input_type_ids",
    "segment_ids": "input_type_ids",
}


def check_inputs(inputs: Any, shape: str = "[batch, length]") -> None:
    """Checks the inputs of a model, as far as they are known while a graph is traced.

    Raises AlbertError if they are not the encoder's dict of tensors, or one has a wrong type or
    another shape than `shape` says. Other entries are ignored.
    """
    names = list(inputs) if isinstance(inputs, Mapping) else []
    if other := next(filter(_OTHER_NAMES.get, names), None):
        name = _OTHER_NAMES[other]
        raise AlbertError(f"The model's name for the input {other!r} is {name!r}; rename it.")
    if "input_word_ids" not in names:
        given = f"a dict of {joined(names)}" if names else type(inputs).__name__
        raise AlbertError(
            f"The model takes a dict of int32 tensors {shape}, 'input_word_ids' and optionally "
            f"'input_mask' and 'input_type_ids', not {given}."
        )
    expected = tf.TensorShape([None] * (shape.count(",") + 1))
    for name in INPUTS:
        value = inputs.get(name)
        if value is None and name != "input_word_ids":
            continue
        if not isinstance(value, (tf.Tensor, np.ndarray)):
            raise AlbertError(
                f"{name} must be a tensor {shape}, not {type(value).__name__}; pad the rows to "
                "one length and use tf.constant."
            )
        if name != "input_mask" and not tf.as_dtype(value.dtype).is_integer:
            raise AlbertError(f"{name} must hold integers, not {tf.as_dtype(value.dtype).name}.")
        own = tf.TensorShape(value.shape)
        if not own.is_compatible_with(expected) or (own.rank and own[-1] == 0):
            wanted = shape if name == "input_word_ids" else f"{expected} of input_word_ids"
            raise AlbertError(f"{name} must have the shape {wanted}, not {own}.")
        expected = expected.merge_with(own)


def first_position(x: Tensor) -> Tensor:
    """Chooses the position of [CLS], [B, 1, H] of [B, S, H]; see `AlbertEncoder.call`."""
    return x[:, :1]


class AlbertModel(keras.Model):
    """Base of the encoder and of the models around it: a Keras model with an AlbertConfig.

    Args:
      config: the architecture.
      dtype: Keras precision policy, such as "mixed_bfloat16"; None means the global one.
      name: name of the Keras model.
    """

    #: Other arguments of a subclass's constructor, which it keeps as attributes.
    ARGUMENTS = ()

    def __init__(self, config: AlbertConfig, dtype: Policy = None, name: str | None = None) -> None:
        if not isinstance(config, AlbertConfig):
            raise AlbertError(
                f"The configuration must be an AlbertConfig, not {short_repr(config)}; make one "
                "with AlbertConfig.from_preset, from_json or from_dict."
            )
        check_not_forked()
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.config = config
        self.built = True  # Constructors create all variables.

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model; see `call`.

        Raises:
          AlbertError: an input belongs to another Keras, a layer of Keras 3 calls the model, or the
            process is a fork of one that has used a model.
        """
        check_not_forked()
        values = inputs.values() if isinstance(inputs, Mapping) else [inputs]
        check_same_keras(type(self).__name__, values)
        # The code needs no AutoGraph, whose conversion takes longer than the tracing.
        call = tf.autograph.experimental.do_not_convert(super().__call__)
        return call(inputs, *args, **kwargs)

    def named_weights(self) -> dict[str, tf.Variable]:
        """Returns the variables by their names in the TF1 release, in its order of creation."""
        return {k: v for layer in self.layers for k, v in layer.named_weights().items()}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, ready for JSON; see `from_config`."""
        return {
            "config": self.config.to_dict(),
            "dtype": self.dtype_policy.name,
            "name": self.name,
            "trainable": self.trainable,
            **{name: getattr(self, name) for name in self.ARGUMENTS},
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AlbertModel:
        """Builds a model from the result of `get_config`."""
        arguments = {**config, "config": AlbertConfig.from_dict(config["config"])}
        trainable = arguments.pop("trainable", True)
        model = cls(**arguments)
        if not trainable:  # True would thaw layers that a constructor freezes.
            model.trainable = False
        return model


class Embeddings(WeightedLayer):
    """Sum of the token, segment and position embeddings of width E, layer normalisation, dropout.

    Source: paper section 3.1.
    """

    def __init__(self, config: AlbertConfig, dtype: Policy) -> None:
        super().__init__("bert/embeddings", config.initializer_range, dtype)
        size = config.embedding_size
        self._dropout_rate = config.hidden_dropout_prob
        self.word_embeddings = self.matrix("word_embeddings", [config.vocab_size, size])
        self.token_type_embeddings = self.matrix(
            "token_type_embeddings", [config.type_vocab_size, size]
        )
        self.position_embeddings = self.matrix(
            "position_embeddings", [config.max_position_embeddings, size]
        )
        self.layer_norm = self.norm("LayerNorm", size)

    def call(self, word_ids: Tensor, type_ids: Tensor, training: bool = False) -> Tensor:
        """Embeds int32 [B, S] word and segment ids; returns [B, S, E] in the compute type.

        Raises:
          AlbertError: the sequence is longer than the table of positions.
        """
        length = dimension(word_ids, 1)
        positions, size = self.position_embeddings.shape
        if isinstance(length, int) and length > positions:
            raise AlbertError(
                f"The sequence length {length} exceeds max_position_embeddings {positions}."
            )
        # Sparse gradients, as in the release; the training loop adds them up before it clips.
        words = tf.gather(self.word_embeddings, word_ids)
        x = words + tf.gather(self.token_type_embeddings, type_ids)
        x = tf.reshape(x + self.position_embeddings[:length], [-1, size])  # [B * S, E]
        x = layer_norm([x], *self.layer_norm)
        x = dropout(x, self._dropout_rate, training)
        return tf.reshape(tf.cast(x, self.compute_dtype), [-1, length, size])


class Projection(WeightedLayer):
    """A dense layer; `prefix` and `name` are those of its variables."""

    def __init__(
        self, prefix: str, name: str, inputs: int, config: AlbertConfig, dtype: Policy
    ) -> None:
        super().__init__(prefix, config.initializer_range, dtype)
        self._dense = self.dense(name, inputs, config.hidden_size)

    def call(self, x: Tensor) -> Tensor:
        """Maps [rows, inputs] to [rows, H]."""
        return affine(x, *(tf.cast(weight, x.dtype) for weight in self._dense))


@serializable
class AlbertEncoder(AlbertModel):
    """The ALBERT encoder (paper section 3; official `modeling.AlbertModel`).

    Called with a dict of int32 [B, S] tensors: `input_word_ids`, and optionally `input_mask`
    (default: ones) and `input_type_ids` (default: zeros). Returns a dict:

      sequence_output: [B, S, H] of the last layer, in the compute type.
      pooled_output: float32 [B, H].
      encoder_outputs: list of the [B, S, H] outputs of all layers, in the compute type. (`embed`
        returns the input of the first layer.)

    Example:
      encoder = AlbertEncoder(AlbertConfig.from_preset("albert_base_v2"))
      encoder({"input_word_ids": tf.constant([[2, 13, 1, 3]])})["pooled_output"]
    """

    def __init__(
        self, config: AlbertConfig, dtype: Policy = None, name: str | None = "albert_encoder"
    ) -> None:
        super().__init__(config, dtype, name)
        self.embeddings = Embeddings(config, dtype)
        size = config.embedding_size
        self.projection = None
        if size != config.hidden_size:
            name = "embedding_hidden_mapping_in"
            self.projection = Projection("bert/encoder", name, size, config, dtype)
        self.transformer = Transformer(config, dtype)
        self.pooler = Projection("bert/pooler", "dense", config.hidden_size, config, dtype)

    def embed(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Returns the input of the first layer, [B, S, H] in the compute type; see `call`."""
        check_inputs(inputs)
        word_ids, type_ids = inputs["input_word_ids"], inputs.get("input_type_ids")
        type_ids = tf.zeros_like(word_ids) if type_ids is None else type_ids
        x = self.embeddings(word_ids, type_ids, training=training)  # [B, S, E]
        if self.projection is None:
            return x
        length = dimension(x, 1)
        x = self.projection(tf.reshape(x, [-1, self.config.embedding_size]))  # [B * S, H]
        return tf.reshape(x, [-1, length, self.config.hidden_size])

    def call(self, inputs: Inputs, training: bool = False, select: Select = None) -> dict[str, Any]:
        """Encodes a batch; see the class.

        Args:
          inputs: the dict of tensors.
          training: whether dropout is active.
          select: for models that do not read all outputs: maps [B, S, H] to the positions
            [B, P, H] that are read, the first of which must be that of [CLS]. The last layer
            computes only these: `sequence_output`, and the last of `encoder_outputs`, is [B, P, H].

        Raises:
          AlbertError: the inputs have a wrong form, or are longer than max_position_embeddings.
        """
        x = self.embed(inputs, training)  # Checks the inputs.
        mask = inputs.get("input_mask")
        mask = tf.ones_like(inputs["input_word_ids"]) if mask is None else mask
        length = dimension(x, 1)
        if current_mode() is not GraphMode.TPU:
            # Two dimensions from here on, so that every product is one plain matrix product.
            x = tf.reshape(x, [-1, self.config.hidden_size])  # [B * S, H]
        *others, last = self.transformer(x, additive_mask(mask), training=training, select=select)
        shape = [-1, length, self.config.hidden_size]
        outputs = [tf.reshape(y, shape) for y in others]
        if select is not None:
            shape[:2] = dimension(mask, 0), -1
        outputs.append(tf.reshape(last, shape))
        pooled_output = tf.cast(self.pooler(outputs[-1][:, 0]), tf.float32)
        return {
            "sequence_output": outputs[-1],
            "pooled_output": tf.tanh(pooled_output),
            "encoder_outputs": outputs,
        }


def pooled(
    encoder: AlbertEncoder,
    inputs: Inputs,
    pooling: str,
    piece_weights: np.ndarray,
    training: bool = False,
) -> Tensor:
    """Returns a vector for each sequence of a batch, float32 [B, H].

    `pooling` is one of albert_tf.config.POOLINGS: "sif", the mean of the first and the last layer
    over all pieces, weighted by `piece_weights`, float32 [pieces] (Arora et al. 2017); "mean", that
    of the last layer without weights; or "cls", the last layer at [CLS], before the pooler. The
    means include [CLS] and [SEP], not padding.
    """
    select = first_position if pooling == "cls" else None
    outputs = encoder(inputs, training=training, select=select)
    tokens = tf.cast(outputs["sequence_output"], tf.float32)
    if pooling == "cls":
        return tokens[:, 0]
    weights = tf.cast(inputs["input_mask"], tf.float32)
    if pooling == "sif":
        tokens = (tokens + tf.cast(outputs["encoder_outputs"][0], tf.float32)) / 2
        weights *= tf.gather(piece_weights, inputs["input_word_ids"])
    weights = tf.expand_dims(weights, -1)
    return tf.reduce_sum(tokens * weights, axis=1) / tf.reduce_sum(weights, axis=1)


class AlbertEmbedder(AlbertModel):
    """One vector for each text, see `pooled`. A task builds it; `from_config` cannot.

    Called with the encoder's dict, int32 [B, S], whose `input_mask` it needs. Returns a dict:
    `embedding` float32 [B, H].

    Args:
      config: the architecture.
      pooling: one of albert_tf.config.POOLINGS.
      piece_weights: of "sif", float32 [pieces], see `Tokenizer.piece_weights`.
      normalize: divide each vector by its length, so that dot products are cosines.
    """

    def __init__(
        self,
        config: AlbertConfig,
        pooling: str,
        piece_weights: np.ndarray,
        normalize: bool,
        dtype: Policy,
    ) -> None:
        super().__init__(config, dtype, "albert_embedder")
        self._pool = functools.partial(pooled, pooling=pooling, piece_weights=piece_weights)
        self._normalize = normalize
        self.encoder = AlbertEncoder(config, dtype)

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Embeds a batch; see the class."""
        vectors = self._pool(self.encoder, inputs, training=training)
        return {"embedding": tf.math.l2_normalize(vectors, -1) if self._normalize else vectors}
