# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence vectors as a task: contrastive losses within a batch, and cosines of scored pairs."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import scipy.stats
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.log import log
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import INPUTS, AlbertEmbedder
from albert_tf.tasks.embedding.data import EmbeddingExample, EmbeddingSpec, read_embedding
from albert_tf.tasks.fine_tuning_task import ExampleSet, FineTuningTask
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, JointTask, Metrics, Tensors, correct, floats
from albert_tf.weights.pretrained_model import unit
from albert_tf.weights.run_folder import RunFolder

VECTORS_FILE = "vectors.npy"
#: The mean cosine of unrelated texts from which on vectors say little.
_COLLAPSED = 0.9
#: Queries compared at a time.
_CHUNK = 1024


class EmbeddingTask(JointTask, FineTuningTask):
    """Trains an encoder so that texts that belong together have similar vectors.

    - Texts: each is embedded twice, with other dropout masks, and has to find its second vector
      among those of the batch (Gao et al. 2021, unsupervised SimCSE).
    - Pairs: each text has to find its partner among the second texts of the batch, and the negative
      ones if there are some, and the partner the text (symmetric cross-entropy).
    - Scored pairs: the cosine is compared with the score, from 0 for the lowest of the training to
      1 for the highest, by its squared error.
    """

    name = "embedding"
    spec_class = EmbeddingSpec
    form = "albert_tf.tasks.embedding.export.EmbeddingForm"
    recipe = "embedding"
    read = staticmethod(read_embedding)
    prediction_files = (VECTORS_FILE,)
    #: Depends on what is evaluated, see `metrics`.
    best_metric = "spearman"

    def encode(
        self,
        examples: Sequence[EmbeddingExample],
        *,
        labelled: bool = True,
        training: bool = False,
    ) -> ExampleSet:
        """See FineTuningTask. Makes [CLS] text [SEP] of each text of an example."""
        number, room = len(examples[0].texts), self.spec.max_seq_length - 2
        is_scored = examples[0].score is not None
        if labelled and not training:
            if number == 1:
                raise AlbertError(f"{examples[0].where}: evaluation needs pairs of texts.")
            self.best_metric = "spearman" if is_scored else "mrr"
        scores = np.array([[example.score][:is_scored] for example in examples], np.float64)
        if labelled and is_scored:
            if scores.min() == scores.max():
                raise AlbertError(
                    f"The scores of the {len(examples):,} pairs are all {scores[0, 0]:g}; they "
                    "must differ."
                )
            scores = (scores - scores.min()) / (scores.max() - scores.min())
        data, notes = self.join(
            [(text, "") for example in examples for text in example.texts],
            lambda ids, _: (ids[:room], None),
            {"targets": scores},
            number if number > 1 else None,
        )
        kind = "scored pairs" if is_scored else ("texts", "pairs", "triplets")[number - 1]
        return ExampleSet(
            examples,
            data,
            f"{len(examples):,} {kind}, {data.mean_length:.0f} tokens on average",
            notes=notes,
        )

    def build_model(self, dtype: str = FLOAT32) -> AlbertEmbedder:
        """Builds the encoder with its pooling."""
        weights = self.tokenizer.piece_weights()
        return AlbertEmbedder(self.config, self.spec.pooling, weights, self.spec.normalize, dtype)

    def vectors(self, model: keras.Model, batch: Batch, training: bool = False) -> tf.Tensor:
        """Returns the vectors of a batch, float32 [batch, H], or [batch, texts, H] of pairs.

        In training, single texts are embedded twice, with other dropout masks.
        """
        inputs = {name: batch[name] for name in INPUTS}
        if training and inputs["input_word_ids"].shape.rank == 2:
            inputs = {name: tf.stack([x, x], axis=1) for name, x in inputs.items()}
        *sizes, length = tf.unstack(tf.shape(inputs["input_word_ids"]))
        rows = {name: tf.reshape(value, [-1, length]) for name, value in inputs.items()}
        vectors = model(rows, training=training)["embedding"]
        return tf.reshape(vectors, [*sizes, self.config.hidden_size])

    def joint_values(self, vectors: tf.Tensor, targets: tf.Tensor) -> Tensors:
        """See JointTask; `accuracy` is the share of first texts that find their second one."""
        vectors = tf.math.l2_normalize(vectors, axis=-1)
        first, second = vectors[:, 0], vectors[:, 1]
        if targets.shape[1]:
            cosines = tf.reduce_sum(first * second, axis=-1)
            return {"loss": tf.square(cosines - targets[:, 0])}
        own = tf.range(tf.shape(vectors, tf.int64)[0])
        others = tf.concat([*tf.unstack(vectors[:, 1:], axis=1)], axis=0)
        forth, back = (
            tf.matmul(texts, candidates, transpose_b=True) / self.spec.temperature
            for texts, candidates in ((first, others), (second, first))
        )
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = (entropy(own, forth) + entropy(own, back)) / 2
        return {"loss": losses, "accuracy": correct(forth, own)}

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns `embedding`, see `vectors`."""
        return {"embedding": self.vectors(model, batch)}

    def metrics(self, outputs: Arrays, examples: ExampleSet) -> Metrics:
        """Returns how well cosines order scored pairs, or find the second texts of pairs.

        Of scored pairs: `spearman` and `pearson`, the correlations of cosines and scores. Of pairs:
        `recall_at_1`, `recall_at_10` and `mrr`, the mean reciprocal rank, of each text's partner
        among the distinct second texts. Of both: `mean_cosine`, that of unrelated texts, which is
        near 1 if the vectors have collapsed.
        """
        vectors, rows = unit(outputs["embedding"]), examples.examples
        first, last = vectors[:, 0], vectors[:, 1]
        found = {}
        if rows[0].score is not None:
            cosines, scores = (first * last).sum(-1), [example.score for example in rows]
            found["spearman"] = scipy.stats.spearmanr(cosines, scores).statistic
            found["pearson"] = scipy.stats.pearsonr(cosines, scores).statistic
        else:
            ranks = _ranks(first, last, [example.texts[1] for example in rows])
            found = {f"recall_at_{top}": (ranks <= top).mean() for top in (1, 10)}
            found["mrr"] = (1 / ranks).mean()
        found["mean_cosine"] = (first * np.roll(last, 1, axis=0)).sum(-1).mean()
        return floats(found)

    def constant_answer_note(self, metrics: Metrics) -> str | None:
        """See Task: says whether the vectors have collapsed."""
        if (cosine := metrics.get("mean_cosine", 0.0)) < _COLLAPSED:
            return None
        return (
            f"The vectors have collapsed: the mean cosine of unrelated texts is {cosine:.2f}. "
            "Use a lower learning rate or temperature, or more different texts."
        )

    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes vectors.npy, float32 [n, H], or [n, texts, H] of pairs."""
        np.save(buffer := io.BytesIO(), outputs["embedding"])
        files.write_bytes(path := folder.file(VECTORS_FILE), buffer.getvalue())
        log.info(f"Written to {path}.")


def _ranks(queries: np.ndarray, passages: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Returns the rank of each query's passage among the passages with distinct texts, int [n]."""
    places = {}
    own = np.array([places.setdefault(text, len(places)) for text in texts])
    _, chosen = np.unique(own, return_index=True)
    ranks = []
    for begin in range(0, len(queries), _CHUNK):
        cosines = queries[begin : begin + _CHUNK] @ passages[chosen].T
        right = np.take_along_axis(cosines, own[begin : begin + _CHUNK, None], axis=1)
        ranks.append((cosines >= right).sum(axis=1))
    return np.concatenate(ranks)
