# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextEmbedder: trained on texts or pairs of texts, it embeds others and searches them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.settings import check_integer
from albert_tf.tasks.embedding.data import EmbeddingExample
from albert_tf.tasks.embedding.task import EmbeddingTask
from albert_tf.tasks.fine_tuned import FineTunedModel
from albert_tf.tokenization.tokenizer import checked_text, checked_texts
from albert_tf.weights.pretrained_model import unit


class Hit(NamedTuple):
    """A text that a search found: its cosine with the query, and its number in the index."""

    text: str
    score: float
    index: int


class TextEmbedder(FineTunedModel):
    """Gives texts vectors that are similar where texts are. `train` and `load` create it.

    The data to train and evaluate on are a list of texts, or have the columns of `read_embedding`:
    text; text and text_pair, perhaps with a negative; or these two and their score. The data to
    evaluate on may be of another kind. The script is run_embedder.py.

    Example:
      embedder = TextEmbedder.load("runs/vectors")
      embedder.index(["A ship sailed.", "She danced."])
      embedder.search("boats at sea", top_k=1)[0].text
    """

    task_class = EmbeddingTask
    _index = None

    def embed(self, texts: Sequence[str], batch_size: int | None = None) -> np.ndarray:
        """Returns the vectors of texts, float32 [texts, H]; of length 1 if trained to `normalize`.

        Texts are computed in batches of similar lengths, `batch_size` at a time if it is given.

        Raises:
          AlbertError: the texts are not a list of strings.
        """
        texts = checked_texts(texts)
        if not texts:
            return np.zeros([0, self.task.config.hidden_size], np.float32)
        examples = [EmbeddingExample((text,), None, "") for text in texts]
        return self._outputs_of(examples, batch_size)[1]["embedding"]

    def index(self, texts: Sequence[str]) -> None:
        """Embeds the texts that `search` compares with its queries, in place of earlier ones."""
        self._index = checked_texts(texts), unit(self.embed(texts))

    def search(self, queries: str | Sequence[str], top_k: int = 10) -> list[Hit] | list[list[Hit]]:
        """Returns the texts of the index that are most similar to a query, the best first.

        Of a list of queries, returns a list for each. All texts are compared, without an
        approximation.

        Raises:
          AlbertError: there is no index yet, or a query is not a string.
        """
        if self._index is None:
            raise AlbertError("There is nothing to search in: call `index` with texts first.")
        top_k = check_integer("`top_k`", top_k)
        single = isinstance(queries, (str, bytes))
        queries = [checked_text(queries, "The query")] if single else checked_texts(queries)
        found, (texts, vectors) = [], self._index
        for row in unit(self.embed(queries)) @ vectors.T:
            best = np.argsort(-row, kind="stable")[:top_k]
            found.append([Hit(texts[i], float(row[i]), int(i)) for i in best])
        return found[0] if single else found
