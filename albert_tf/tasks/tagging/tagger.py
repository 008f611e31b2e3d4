# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextTagger: trained on texts with tags or entities, it finds those of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.io.text_tables import data_rows
from albert_tf.tasks.fine_tuned import FineTunedModel, is_list
from albert_tf.tasks.tagging.data import (
    Tagged,
    TaggedText,
    read_tagged,
    tagged_texts,
    training_tags,
)
from albert_tf.tasks.tagging.task import TaggingTask
from albert_tf.tokenization.tokenizer import checked_text, checked_texts


class TextTagger(FineTunedModel):
    """Finds entities in texts, or tags words. `train` and `load` create it.

    Example:
      tagger = TextTagger.load("runs/ner")
      tagger.predict(["Ada Lovelace was born in London."])[0].entities
    """

    task_class = TaggingTask

    @classmethod
    def train(cls, model: str, train: Any, eval: Any = None, **settings: Any) -> TextTagger:
        """Fine-tunes a pretrained model, with the recipe and the results of run_tagger.py.

        As `TextClassifier.train`, except for:

        Args:
          model: what to start from; see `albert_tf.load_pretrained`.
          train, eval: texts with tags: the path of a file (see `read_tagged`), or data in memory
            with the columns of `tagged_texts`: tokens and tags, or text and entities.
        """
        texts = read_tagged(train, "train")
        return cls._train(model, "custom", texts, eval, {"tags": training_tags(texts)}, settings)

    @classmethod
    def _read(cls, data: Any, name: str, spec: Mapping[str, Any]) -> list[TaggedText]:
        return read_tagged(data, name)

    def predict(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Tagged]:
        """Returns the words, tags and entities of each text.

        Args:
          texts: texts; or lists of words, whose characters are counted with spaces between words.

        Raises:
          AlbertError: `texts` are neither.
        """
        items = texts if is_list(texts) else checked_texts(texts)
        rows = [{"tokens": x} if is_list(x) else {"text": checked_text(x)} for x in items]
        return self.tagged(tagged_texts(data_rows(rows, "predict")))

    def tagged(self, texts: Sequence[TaggedText]) -> list[Tagged]:
        """Returns the words, tags and entities of texts of `read_tagged`."""
        if not texts:
            return []
        data, outputs = self._outputs_of(texts)
        return data.results(outputs, self.task.spec)
