# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextTagger: trained on texts with tags or entities, it finds those of others."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf.io.text_tables import data_rows
from albert_tf.tasks.fine_tuned import FineTunedModel, is_list
from albert_tf.tasks.tagging.data import Tagged, TaggedText, tagged_texts
from albert_tf.tasks.tagging.task import TaggingTask
from albert_tf.tokenization.tokenizer import checked_text, checked_texts


class TextTagger(FineTunedModel):
    """Finds entities in texts, or tags words. `train` and `load` create it.

    The data to train and evaluate on are texts with tags: files of `read_tagged`, or data with the
    columns of `tagged_texts`: tokens and tags, or text and entities. The script is run_tagger.py.

    Example:
      tagger = TextTagger.load("runs/ner")
      tagger.predict(["Ada Lovelace was born in London."])[0].entities
    """

    task_class = TaggingTask

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
