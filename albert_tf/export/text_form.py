# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextForm: what every SavedModel that takes texts has in common; and packing, for its graphs.

tensorflow-text pads; its `combine_segments` cannot leave out the [SEP] of an empty segment, and its
trimmers need custom operations or loops where two lines of arithmetic do.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.export.saved_model import Export, ReusableSavedModel
from albert_tf.export.self_check import Probe
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert_tf.tasks.fine_tuning_task import ExampleSet, FineTuningTask
    from albert_tf.training.task import Arrays, Batch, Tensors

#: Words, punctuation, accents, text without spaces, and numbers with commas, which ALBERT's
#: tokenizer treats specially.
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "In 2019, 1,234 naïve readers asked: why so many layers, and so few weights?",
    "Ada wrote the first program in 1843, in London; 子曰：「知之為知之。」 nobody ran it.",
)
QUESTIONS = ("Who jumps over the _ dog?", "How many readers?", "Who wrote it in 1843, and where?")
_LONG = 40
_EXAMPLE = """import tensorflow as tf
import tensorflow_text  # registers the operations that read text

{name} = tf.saved_model.load("{{name}}")
{call}"""


class TextForm(abc.ABC):
    """Texts in, ids, the model, outputs out: a kind of SavedModels that take texts.

    A kind declares this; `text_export` makes the SavedModel, its signatures and its check.

    Args:
      task: the task of the model.
      model: what the SavedModel computes with, in any precision.

    Attributes:
      title: of the model card.
      call: Python code for the card that calls the SavedModel, such as 'tag(["A text."])'.
      samples: by the name of each input, texts for the check, as many of each: strings for an
        input [B], or lists of strings for an input [B, n].
      columns: the names of the inputs in rows that the task reads.
      takes_ids: whether the model is also exported in formats that take token ids; see `of_ids`.
      labels: what the entries of an output stand for; the SavedModel returns them by `labels()`.
    """

    columns = ()
    takes_ids = False
    labels = ()

    def __init__(self, task: FineTuningTask, model: AlbertModel) -> None:
        self.tokenizer, self.task, self.model = task.tokenizer, task, model
        self.graph = task.tokenizer.graph()

    # All signatures call this graph: tracing and storing a deep model takes seconds and megabytes.
    @tf.function(autograph=False)
    def predict(self, inputs: Tensors) -> Tensors:
        """Returns the outputs of `task.predict` for the encoder's inputs, [..., S]."""
        with graph_mode(GraphMode.SERVED):
            return self.task.predict(self.model, cut_padding(inputs))

    def of_ids(self, inputs: Tensors) -> Tensors:
        """Returns the outputs in formats that take token ids, for the encoder's inputs, [B, S]."""
        return self.task.predict(self.model, inputs)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [B], int32 [B, (tokens)], without [CLS] and [SEP]."""
        return merge_words(self.graph(texts))

    def signatures(self) -> dict[str, Sequence[str]]:
        """Returns the names of the inputs of each signature."""
        return {"serving_default": [*self.samples]}

    @abc.abstractmethod
    def outputs(self, *texts: tf.Tensor) -> Tensors:
        """Returns the SavedModel's outputs, given its inputs; `self.predict` calls the model.

        The parameters have the names of the inputs; later ones may be optional.
        """

    def examples(self, *texts: Sequence[Any]) -> Sequence[Any]:
        """Returns examples of the task, given the texts, or lists of texts, of each input."""
        rows = [dict(zip(self.columns, row)) for row in zip(*texts)]
        return self.task.read(rows, "sample")

    def found(self, data: ExampleSet, outputs: Arrays) -> Arrays:
        """Returns outputs of the SavedModel, given those of `task.predict` for examples."""
        return outputs

    def expected(self, model: AlbertModel, *texts: Sequence[Any]) -> Arrays:
        """Returns outputs to compare with, from the float32 model and the Python tokenizer."""
        data = self.task.encode(self.examples(*texts), labelled=False)
        return self.found(data, data.outputs(functools.partial(self.task.predict, model)))


def merge_words(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns ids [B, (tokens)] from ids [B, (words), (pieces)] or [B, (tokens)]."""
    return ids.merge_dims(1, ids.ragged_rank)


def keep(ids: tf.RaggedTensor, longest: int | tf.Tensor, at_end: bool = False) -> tf.RaggedTensor:
    """Returns the first, or last, entries of each row: at most `longest`, an int or int64 [B]."""
    lengths = tf.minimum(ids.row_lengths(), longest)
    first = ids.row_limits() - lengths if at_end else ids.row_starts()
    return tf.gather(ids.values, tf.ragged.range(first, first + lengths))


def pack(
    segments: Sequence[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    tokenizer: Tokenizer,
    skip_empty_second: bool = False,
) -> Tensors:
    """Joins one or two segments to [CLS] A [SEP] or [CLS] A [SEP] B [SEP], and pads.

    Two segments that are too long lose tokens off the end of the longer one, B first where they
    are equally long.

    Args:
      segments: ragged int32 [B, (tokens)].
      seq_length: S, an int or a scalar int32 tensor; at least 3, or 2 for one segment.
      tokenizer: has the ids of the special pieces.
      skip_empty_second: whether a pair whose B is empty becomes [CLS] A [SEP].

    Returns:
      `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S].
    """
    first, *others = segments
    room = tf.cast(seq_length, tf.int64) - 2
    separator = tf.fill([first.nrows(), 1], tokenizer.sep_id)
    parts = [tf.fill([first.nrows(), 1], tokenizer.cls_id), keep(first, room), separator]
    for second in others:
        count = tf.ones_like(second.row_lengths())
        if skip_empty_second:
            count = tf.minimum(second.row_lengths(), 1)
        room -= count
        first = keep(first, tf.maximum(room - second.row_lengths(), (room + 1) // 2))
        separators = tf.RaggedTensor.from_tensor(separator, lengths=count)
        parts[1:] = [first, separator, keep(second, room - first.row_lengths()), separators]
    ids, mask = tf_text.pad_model_inputs(tf.concat(parts, axis=1), seq_length, tokenizer.pad_id)
    # Padding has type 0.
    is_second = tf.range(tf.cast(seq_length, tf.int64)) >= parts[1].row_lengths()[:, None] + 2
    types = mask * tf.cast(is_second, tf.int32)
    packed = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    shape = [None, seq_length if isinstance(seq_length, int) else None]
    return {name: tf.ensure_shape(value, shape) for name, value in packed.items()}


def cut_padding(inputs: Batch) -> Tensors:
    """Cuts the encoder's inputs [..., S] at the end of the longest sequence."""
    mask = inputs["input_mask"]
    # Of no sequences at all, the largest length is negative.
    longest = tf.maximum(tf.reduce_max(tf.reduce_sum(mask, axis=-1)), 1)
    return {name: value[..., :longest] for name, value in inputs.items()}


def strings(name: str, rank: int = 1) -> tf.TensorSpec:
    """Returns the spec of a string input of any size."""
    return tf.TensorSpec([None] * rank, tf.string, name)


def text_example(call: str) -> str:
    """Returns the card's example, given Python code that calls the SavedModel."""
    return _EXAMPLE.format(name=call.partition("(")[0], call=call)


def text_probes(
    samples: Mapping[str, Sequence[Any]], expected: Callable[..., Arrays]
) -> list[Probe]:
    """Returns probes with one text and with all, as they are and long.

    `samples` are texts by input, see TextForm; `expected` computes the outputs for texts of each.
    """
    probes = []
    for end, change in ((1, str), (1, _lengthened), (None, str), (None, _lengthened)):
        texts = [tf.nest.map_structure(change, rows[:end]) for rows in samples.values()]
        inputs = {name: np.char.encode(rows, "utf-8") for name, rows in zip(samples, texts)}
        probes.append(Probe(inputs, expected(*texts)))
    return probes


def text_export(form: TextForm, model: AlbertModel, precision: str) -> Export:
    """Returns the SavedModel of a form, to be compared with a float32 model."""
    call = tf.function(form.outputs, autograph=False)
    root = ReusableSavedModel(call, form.model.named_weights().values(), trainable=False)
    root.tokenizer = form.graph
    if form.labels:
        labels = np.array(form.labels)
        root.labels = tf.function(lambda: tf.constant(labels), input_signature=[], autograph=False)
    expected = functools.partial(form.expected, model)
    signatures, probes = {}, []
    for key, names in form.signatures().items():
        samples = {name: form.samples[name] for name in names}
        specs = [strings(name, np.ndim(texts)) for name, texts in samples.items()]
        signatures[key] = call.get_concrete_function(*specs)
        probes += text_probes(samples, expected)
    example = text_example(form.call)
    return Export(form.title, example, root, signatures, probes, precision=precision)


def _lengthened(text: str) -> str:
    # Numbered, because windows with the same text would have equal scores.
    return " ".join(f"{number} {text}" for number in range(_LONG))
