# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT for token classification, such as named-entity recognition: a task in one file.

  python examples/run_token_classifier.py --do_train --do_eval --train_file=train.txt \\
    --eval_file=dev.txt --output_dir=runs/ner
  python examples/run_token_classifier.py --do_predict --predict_file=new.txt --output_dir=runs/ner
  python examples/run_token_classifier.py --export_path=exports/ner --output_dir=runs/ner

Files are in CoNLL's format: one word per line, with its tag in the last column, and an empty line
after each sentence. Evaluating writes eval_results.json with precision, recall and F1 of whole
entities, as computed by seqeval (`pip install seqeval`). Predicting writes predictions.txt, with a
word and its tag per line.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.length_batches import NO_NUMBER, Sequences
from albert_tf.errors import AlbertError
from albert_tf.export.packing import cut_padding, join, keep, merge_words
from albert_tf.export.saved_model import Export, Kind, strings, text_model
from albert_tf.export.self_check import Probe, as_bytes, text_batches
from albert_tf.io import files, text_files
from albert_tf.modeling.classifier import ClassificationHead
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel
from albert_tf.tasks.base import ExampleSet, FineTuningTask, model_inputs
from albert_tf.tasks.flags import run_task_script
from albert_tf.training.task import Arrays, Batch, Tensors, correct
from albert_tf.weights.run_folder import RunFolder

KIND = Kind.of_texts(
    "ALBERT token classifier", "tag", 'tag(["Words are separated by spaces ."])["tags"]'
)


class Sentence(NamedTuple):
    """Words with a tag for each. Unknown tags are empty; without labels there are no tags."""

    words: Sequence[str]
    tags: Sequence[str] = ()


def read_sentences(path: str) -> list[Sentence]:
    """Reads a file in CoNLL's format; a line with one column is a word without a tag."""
    sentences, words, tags = [], [], []
    for line in [*text_files.read_lines(path), ""]:
        columns = line.split()
        if columns and columns[0] != "-DOCSTART-":
            words.append(columns[0])
            tags.append(columns[-1] if len(columns) > 1 else "")
        elif words:
            sentences.append(Sentence(words, tags))
            words, tags = [], []
    if not sentences:
        raise AlbertError(f"{path} has no sentences.")
    return sentences


@dataclasses.dataclass(frozen=True)
class TaggingSpec:
    """The tags in the order of the model's outputs, and the maximum length in tokens."""

    tags: tuple[str, ...]
    max_seq_length: int


class AlbertTagger(AlbertModel):
    """The encoder with a linear layer at each position; returns float32 logits [B, S, tags]."""

    def __init__(self, config: AlbertConfig, num_tags: int, dtype: str) -> None:
        super().__init__(config, dtype)
        self.encoder = AlbertEncoder(config, dtype)
        self.head = ClassificationHead(num_tags, config.hidden_size, dtype=dtype)
        self.built = True

    def call(self, inputs: Tensors, training: bool = False) -> tf.Tensor:
        """Tags a batch."""
        sequence = tf.cast(self.encoder(inputs, training=training)["sequence_output"], tf.float32)
        logits = self.head(tf.reshape(sequence, [-1, self.config.hidden_size]))
        return tf.reshape(logits, [tf.shape(sequence)[0], -1, logits.shape[1]])


class TokenClassificationTask(FineTuningTask):
    """Predicts the tag of each word at its first token; the loss is the mean over the words."""

    name = "token_classification"
    spec_class = TaggingSpec
    names_of_outputs = "tags"
    best_metric = "f1"

    def encode(
        self,
        examples: Sequence[Sentence],
        *,
        labelled: bool = True,
        training: bool = False,
    ) -> ExampleSet:
        """Makes sequences with a tag for each token; NO_NUMBER for those without."""
        numbers = {tag: number for number, tag in enumerate(self.spec.tags)}
        unknown = {tag for sentence in examples for tag in sentence.tags} - set(numbers)
        if unknown and labelled:
            tags = ", ".join(sorted(unknown))
            raise AlbertError(f"The examples have unknown tags: {tags}.")
        ids, tags = zip(*(self._row(example, numbers) for example in examples))
        sequences = ((row, len(row)) for row in ids)
        data = Sequences(sequences, self.tokenizer.pad_id, token_columns={"tags": tags})
        return ExampleSet(examples, data, f"{len(examples):,} sentences")

    def _row(self, sentence: Sentence, numbers: Mapping[str, int]) -> tuple[list[int], list[int]]:
        """Returns ids [tokens] and tags [tokens], with 0 for unknown tags."""
        ids, tags = [self.tokenizer.cls_id], [NO_NUMBER]
        encoded = self.tokenizer.encode_batch(sentence.words)
        for pieces, tag in itertools.zip_longest(encoded, sentence.tags):
            pieces = pieces or [self.tokenizer.unk_id]
            ids += pieces
            tags += [numbers.get(tag, 0), *[NO_NUMBER] * len(pieces)][: len(pieces)]
        kept = self.spec.max_seq_length - 1
        return [*ids[:kept], self.tokenizer.sep_id], [*tags[:kept], NO_NUMBER]

    def build_model(self, dtype: str = "float32") -> AlbertTagger:
        """Builds the encoder with its head."""
        return AlbertTagger(self.config, len(self.spec.tags), dtype)

    def weights(self, batch: Batch) -> Tensors:
        """Counts the words in the batch."""
        return {"examples": tf.reduce_sum(tf.cast(batch["tags"] >= 0, tf.float32))}

    def sums(self, model: AlbertTagger, batch: Batch, training: bool) -> Tensors:
        """Sums the loss and the correct tags."""
        logits = model(model_inputs(batch), training=training)
        tags = batch["tags"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(tags, 0), logits)
        counts = tf.cast(tags >= 0, tf.float32)
        hits = tf.cast(correct(logits, tags), tf.float32)
        return {"loss": tf.reduce_sum(losses * counts), "accuracy": tf.reduce_sum(hits)}

    def predict(self, model: AlbertTagger, batch: Batch) -> Tensors:
        """Returns the predicted tags and those of the words, int32 [batch, max_seq_length]."""
        predicted = tf.argmax(model(model_inputs(batch)), -1, tf.int32)
        padding = [[0, 0], [0, self.spec.max_seq_length - tf.shape(predicted)[1]]]
        tags = tf.pad(batch["tags"], padding, constant_values=NO_NUMBER)
        return {"predicted": tf.pad(predicted, padding), "tags": tags}

    def _words(self, outputs: Arrays, name: str) -> list[list[str]]:
        """Returns the tags of the words of each sentence, without words that were cut off."""
        rows = zip(outputs[name], outputs["tags"] >= 0)
        return [[self.spec.tags[i] for i in row[tagged]] for row, tagged in rows]

    def metrics(self, outputs: Arrays, examples: Any = None) -> dict[str, float]:
        """Computes precision, recall and F1 of whole entities."""
        from seqeval.metrics import f1_score, precision_score, recall_score

        tags = self._words(outputs, "tags"), self._words(outputs, "predicted")
        scores = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
        return {name: float(score(*tags, zero_division=0)) for name, score in scores.items()}

    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.txt; words that were cut off get the tag O."""
        path = folder.file("predictions.txt")
        rows = zip(data.examples, self._words(outputs, "predicted"))
        pairs = [zip(x.words, [*tags, *["O"] * len(x.words)]) for x, tags in rows]
        files.write_text(path, "\n".join("".join(f"{w} {t}\n" for w, t in x) for x in pairs))
        print(f"Tags of {len(pairs):,} sentences are in {path}.")

    def export(self, model: AlbertTagger) -> Export:
        """Exports a function from `sentences`, string [B], to `tags`, string [B, words]."""
        graph, longest = self.tokenizer.graph(), self.spec.max_seq_length

        @tf.function(autograph=False, input_signature=[strings("sentences")])
        def tag(sentences: tf.Tensor) -> Tensors:
            words = tf.strings.split(sentences)
            pieces = merge_words(graph(words.values))
            ids = words.with_values(pieces).merge_dims(1, 2)
            kept = keep(ids, longest - 2)
            inputs = join([kept], longest, self.tokenizer)
            best = tf.argmax(model(cut_padding(inputs)), -1)
            row = words.value_rowids()
            first = pieces.row_starts() - tf.gather(ids.row_starts(), row)
            inside = first < tf.gather(kept.row_lengths(), row)
            number = tf.gather_nd(best, tf.stack([row, tf.where(inside, first + 1, 0)], axis=1))
            names = tf.where(inside, tf.gather(tf.constant(self.spec.tags), number), "O")
            return {"tags": words.with_values(names).to_tensor("")}

        root = text_model(tag, graph, model)
        return Export(KIND, root, {"serving_default": tag}, self._probes(model))

    def _probes(self, model: AlbertTagger) -> list[Probe]:
        """Returns probes that check the export."""
        probes = []
        for texts in text_batches():
            sentences = [Sentence(text.split()) for text in texts]
            outputs = self.outputs(model, sentences)
            words = [len(text.split()) for text in texts]
            tags = [
                [*row, *["O"] * (count - len(row)), *[""] * (max(words) - count)]
                for row, count in zip(self._words(outputs, "predicted"), words)
            ]
            expected = {"tags": np.stack([as_bytes(row) for row in tags])}
            probes.append(Probe({"sentences": as_bytes(texts)}, expected))
        return probes


def make_spec(examples: Sequence[Sentence]) -> dict[str, tuple[str, ...]]:
    """Returns the sorted tags of the training sentences."""
    return {"tags": tuple(sorted({tag for sentence in examples for tag in sentence.tags}))}


def main() -> None:
    """Runs the script."""
    run_task_script(TokenClassificationTask, read_sentences, make_spec)


if __name__ == "__main__":
    main()
