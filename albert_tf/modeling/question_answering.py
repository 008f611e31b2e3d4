# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Extractive question answering: a model for each of the release's two heads.

Sequences are [CLS] question [SEP] context [SEP] (padding). Position 0 stands for "no answer".
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.config import AlbertConfig
from albert_tf.modeling.classifier import ClassificationHead
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel, check_inputs, serializable
from albert_tf.modeling.kernels.dense import affine, layer_norm
from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.layers import Inputs, Outputs, Policy, WeightedLayer, dimension

#: Score of a position that cannot be chosen; finite, so that no gradient becomes NaN.
FORBIDDEN = -1e30


def allowed_positions(inputs: Inputs) -> Tensor:
    """Returns where answers may start and end: at [CLS] and in the context without its last [SEP].

    Takes `input_mask` and `input_type_ids`, int32 [B, S], which tell the question, the context and
    the padding. Returns bool [B, S].
    """
    # With int32 TensorFlow would compute on the CPU even if the rest of the graph runs on a GPU.
    mask, type_ids = (tf.cast(inputs[name], tf.int64) for name in ("input_mask", "input_type_ids"))
    position = tf.range(tf.shape(mask, tf.int64)[1])
    before_last = position < tf.reduce_sum(mask, axis=1, keepdims=True) - 1
    return (position == 0) | (before_last & (type_ids == 1))


def masked(scores: Tensor, allowed: Tensor) -> Tensor:
    """Returns scores [B, S] with FORBIDDEN wherever `allowed`, bool [B, S], is false."""
    return tf.where(allowed, scores, FORBIDDEN)


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the k largest of float32 [..., S] and their positions, float32 and int32 [..., k].

    If S is smaller than k, the rest has the score FORBIDDEN and the position 0.
    """
    size = dimension(scores, -1)
    count = min(k, size) if isinstance(size, int) else tf.minimum(k, size)
    values, positions = tf.math.top_k(scores, count)
    missing = [[0, 0]] * (len(scores.shape) - 1) + [[0, k - count]]
    values = tf.pad(values, missing, constant_values=FORBIDDEN)
    shape = [*scores.shape[:-1], k]
    return tf.ensure_shape(values, shape), tf.ensure_shape(tf.pad(positions, missing), shape)


class BeamHead(WeightedLayer):
    """Scores starts, ends given the start, and answerability (official run_squad_v2).

    In training the start is the gold one; in prediction the head searches the ends of the best
    starts, as in XLNet (Yang et al., 2019). `start_n_top` starts are searched, and `end_n_top` ends
    kept for each of them; `dropout_rate` is that of the answerability score's hidden layer.
    """

    def __init__(
        self,
        config: AlbertConfig,
        start_n_top: int,
        end_n_top: int,
        dropout_rate: float,
        dtype: Policy,
    ) -> None:
        super().__init__("", config.initializer_range, dtype)
        size = config.hidden_size
        self._start_n_top, self._end_n_top = start_n_top, end_n_top
        self._dropout_rate = dropout_rate
        self._start = self.dense("start_logits/dense", size, 1)
        self._end_hidden = self.dense("end_logits/dense_0", 2 * size, size)
        self._end_norm = self.norm("end_logits/LayerNorm", size)
        self._end = self.dense("end_logits/dense_1", size, 1)
        self._answer_hidden = self.dense("answer_class/dense_0", 2 * size, size)
        self._answer = self.matrix("answer_class/dense_1/kernel", [size, 1])

    def call(
        self,
        sequence_output: Tensor,
        allowed: Tensor,
        start_positions: Tensor | None = None,
        training: bool = False,
    ) -> Outputs:
        """Scores answers; see AlbertBeamAnswerer for the outputs.

        Takes [B, S, H]; bool [B, S] with at least one true value in each row; and the gold starts,
        int32 [B], or None to search.
        """
        start_logits = _scalar(sequence_output, *self._start)
        start_log_probs = tf.nn.log_softmax(masked(start_logits, allowed))
        outputs = {"cls_logits": self._answerability(sequence_output, start_log_probs, training)}

        def end_log_probs(start) -> Tensor:
            logits = self._end_logits(sequence_output, start)
            return tf.nn.log_softmax(masked(logits, allowed))

        if start_positions is not None:
            ends = end_log_probs(start_positions)
            return {**outputs, "start_log_probs": start_log_probs, "end_log_probs": ends}
        start_scores, starts = top_k(start_log_probs, self._start_n_top)
        # One start at a time: [B, starts, S, H] would be the largest tensor of the model.
        best = [
            top_k(end_log_probs(start), self._end_n_top) for start in tf.unstack(starts, axis=1)
        ]
        end_scores, ends = (tf.concat(parts, axis=1) for parts in zip(*best))
        return {
            **outputs,
            "start_top_log_probs": start_scores,
            "start_top_index": starts,
            "end_top_log_probs": end_scores,
            "end_top_index": ends,
        }

    def _end_logits(self, sequence: Tensor, start: Tensor) -> Tensor:
        """Returns scores [B, S] for the ends of answers that start at `start`, int32 [B]."""
        length, size, dtype = dimension(sequence, 1), sequence.shape[2], sequence.dtype
        kernel, bias = (tf.cast(weight, dtype) for weight in self._end_hidden)
        # dense([h, h_start]) as a sum of two products, so that h_start is multiplied once per row.
        ends = affine(tf.reshape(sequence, [-1, size]), kernel[:size], bias)
        starts = tf.matmul(tf.gather(sequence, start, batch_dims=1), kernel[size:])  # [B, H]
        hidden = tf.tanh(tf.reshape(ends, [-1, length, size]) + starts[:, None])
        normal = layer_norm([tf.reshape(hidden, [-1, size])], *self._end_norm)
        return _scalar(tf.reshape(normal, [-1, length, size]), *self._end)

    def _answerability(self, sequence: Tensor, start_log_probs: Tensor, training: bool) -> Tensor:
        """Returns the logit [B] that there is no answer."""
        x = tf.cast(sequence, tf.float32)
        expected = tf.matmul(tf.exp(start_log_probs)[:, None], x)[:, 0]  # [B, H]
        kernel, bias = self._answer_hidden
        hidden = tf.tanh(tf.matmul(tf.concat([expected, x[:, 0]], 1), kernel) + bias)
        return tf.matmul(dropout(hidden, self._dropout_rate, training), self._answer)[:, 0]


def _scalar(sequence: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Returns a linear function of each position: [B, S, H] to float32 [B, S]."""
    length = dimension(sequence, 1)
    x = tf.reshape(tf.cast(sequence, tf.float32), [-1, sequence.shape[2]])
    return tf.reshape(tf.matmul(x, kernel) + bias, [-1, length])


@serializable
class AlbertSpanAnswerer(AlbertModel):
    """Scores each position as start and as end of the answer (official run_squad_v1).

    The model of SQuAD 1.1. Called with the encoder's dict. Returns a dict: `start_logits` and
    `end_logits`, float32 [B, S], for all positions, allowed or not.
    """

    def __init__(
        self, config: AlbertConfig, dtype: Policy = None, name: str | None = "albert_span_answerer"
    ) -> None:
        super().__init__(config, dtype, name)
        self.encoder = AlbertEncoder(config, dtype)
        self.head = ClassificationHead(2, config.hidden_size, "cls/squad")

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Scores the positions of a batch; see the class."""
        sequence = self.encoder(inputs, training=training)["sequence_output"]
        start, end = tf.unstack(self.head(tf.cast(sequence, tf.float32)), axis=2)
        return {"start_logits": start, "end_logits": end}


@serializable
class AlbertBeamAnswerer(AlbertModel):
    """The encoder with BeamHead, for SQuAD 2.0.

    Called with the encoder's dict, including `input_mask` and `input_type_ids`, from which
    `allowed_positions` follows. Returns a dict:

      cls_logits: float32 [B]; the higher, the more likely there is no answer.
      start_top_log_probs, start_top_index: float32 and int32 [B, start_n_top].
      end_top_log_probs, end_top_index: float32 and int32 [B, start_n_top · end_n_top]; the ends of
        the first start come first.

    With the additional input `start_positions`, int32 [B], it returns in place of the last four
    `start_log_probs` and `end_log_probs`, float32 [B, S], the latter given these starts.

    Args:
      config: the architecture.
      start_n_top, end_n_top, dropout_rate: see BeamHead.
    """

    ARGUMENTS = ("start_n_top", "end_n_top", "dropout_rate")

    def __init__(
        self,
        config: AlbertConfig,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_rate: float = 0.1,
        dtype: Policy = None,
        name: str | None = "albert_beam_answerer",
    ) -> None:
        super().__init__(config, dtype, name)
        self.start_n_top, self.end_n_top = start_n_top, end_n_top
        self.dropout_rate = dropout_rate
        self.encoder = AlbertEncoder(config, dtype)
        self.head = BeamHead(config, start_n_top, end_n_top, dropout_rate, dtype)

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Scores the answers of a batch; see the class."""
        check_inputs(inputs)
        allowed = allowed_positions(inputs)
        sequence = self.encoder(inputs, training=training)["sequence_output"]
        return self.head(sequence, allowed, inputs.get("start_positions"), training=training)
