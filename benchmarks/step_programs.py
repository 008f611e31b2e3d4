# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The train and prediction steps of every task as XLA programs, for compilers of other devices.

`lower` builds a step the way a TPU run does, with weights and a batch of zeros on the CPU, and
returns TensorFlow's HLO of it. Nothing is compiled or run.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from albert_tf.config import AlbertConfig
from benchmarks.random_step import predictions_of, random_columns

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.data.pipeline import RecordSource
    from albert_tf.training.task import Task

PRETRAINING = ("masked", "compact")
FINE_TUNING = ("classification", "regression", "squad_1", "squad_2", "multiple_choice")
TASKS = (*PRETRAINING, *FINE_TUNING)
TRAIN, PREDICT = STAGES = ("train", "predict")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CHOICES = 4


@dataclasses.dataclass(frozen=True)
class Step:
    """A step to lower.

    Attributes:
      task: one of TASKS.
      config: a preset or a JSON file.
      seq_length: positions of a sequence.
      rows: examples in the step's batch; an example of multiple choice has four sequences.
      stage: TRAIN (forward and backward pass and the optimizer's update) or PREDICT, which is also
        the evaluation step.
      micro_batches: parts that the batch is cut into.
      recompute: as `--recompute`.
      precision: a Keras policy.
    """

    task: str
    config: str
    seq_length: int
    rows: int
    stage: str = TRAIN
    micro_batches: int = 1
    recompute: bool = False
    precision: str = "mixed_bfloat16"


#: Of the learning rate of a step that is only compiled.
SCHEDULE = {"learning_rate": 1e-4, "num_train_steps": 100_000}


def lower(step: Step) -> bytes:
    """Returns a step, with the kernels for TPUs, as a serialized HloModuleProto."""
    from albert_tf.modeling.kernels.graph_mode import GraphMode
    from albert_tf.training import loop

    for_tpu = mock.patch.object(loop, "mode_chooser", lambda *_: lambda batch: GraphMode.TPU)
    with tempfile.TemporaryDirectory() as folder, for_tpu:
        task, source = _open_task(step, folder)
        return StepFunction(step, task, source).lower()


class StepFunction:
    """A step of a task as a function that XLA compiles whole.

    Args:
      step: to build.
      task: that the model and the losses are of.
      source: records that tell the shapes of a batch.
      **schedule: arguments of `learning_rate_at`.

    Attributes:
      model: with its initial weights.
      optimizer: of the weights; None for a step of PREDICT.
    """

    def __init__(
        self, step: Step, task: Task, source: RecordSource, **schedule: float | int
    ) -> None:
        import tensorflow as tf

        from albert_tf.data.context import InputContext
        from albert_tf.optimization.optimizer import AlbertOptimizer, learning_rate_at
        from albert_tf.training.devices import make_strategy
        from albert_tf.training.loop import Predictor, TrainLoop
        from albert_tf.training.specs import RunConfig

        # On a TPU the whole step is compiled. So is it here, for the CPU, with `jit_compile`.
        run = RunConfig(
            "unused",
            train_batch_size=step.rows,
            gradient_accumulation_steps=step.micro_batches,
            precision=step.precision,
            recompute=step.recompute,
            jit_compile=True,
        )
        self._strategy = strategy = make_strategy(run)
        with strategy.scope():
            self.model = task.build_model(step.precision)
        self.optimizer = None
        if step.stage == TRAIN:
            decay = functools.partial(learning_rate_at, **(schedule or SCHEDULE))
            with strategy.scope():
                self.optimizer = AlbertOptimizer("lamb", decay, self.model.named_weights())
            loop = (strategy, task, self.model, self.optimizer)
            self._loop = TrainLoop(*loop, run)
            #: Of the vector that a training step returns; known once it is lowered.
            self.metric_names: list[str] = []
            self._uncompiled = TrainLoop(*loop, dataclasses.replace(run, jit_compile=False))
            function = self._vector
            input_fn = source.train_input_fn
        else:
            self._loop = None
            function = Predictor(strategy, task, self.model, jit_compile=True)._replica_step
            input_fn = source.eval_input_fn
        self._function = tf.function(function, jit_compile=True, autograph=False)
        specs = input_fn(InputContext(2)).element_spec
        self._batch = {k: tf.zeros([step.rows, *v.shape[1:]], v.dtype) for k, v in specs.items()}

    def _vector(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Takes a training step; returns its metrics in the order of `metric_names`."""
        import tensorflow as tf

        metrics = self._loop.replica_step(batch)
        self.metric_names = sorted(metrics)
        return tf.stack([metrics[name] for name in self.metric_names])

    def lower(self, stage: str = "hlo_serialized") -> Any:
        """Returns the program, as `tf.function.experimental_get_compiler_ir` does."""
        return self._in_replica(
            lambda batch: self._function.experimental_get_compiler_ir(batch)(stage=stage)
        )

    def arguments(self) -> list[tuple[str, tf.Tensor | tf.Variable]]:
        """Returns the program's parameters in order.

        Returns:
          tensors of the batch with their names, then what the function captures: variables, and
          tensors with an empty name.
        """
        function = self._in_replica(self._function.get_concrete_function)
        variables = {id(variable.handle): variable for variable in function.variables}
        captured = [variables.get(id(value), value) for value in function.captured_inputs]
        return [*sorted(self._batch.items()), *((getattr(v, "name", ""), v) for v in captured)]

    def run_uncompiled(self, batches: Iterable[dict[str, np.ndarray]]) -> list[np.ndarray]:
        """Makes training steps by TensorFlow's own operations; returns the metrics of each."""
        import tensorflow as tf

        step = tf.function(self._uncompiled.replica_step, autograph=False)
        return [
            np.array([metrics[name] for name in self.metric_names])
            for batch in batches
            for metrics in [
                self._strategy.run(step, args=({k: tf.constant(v) for k, v in batch.items()},))
            ]
        ]

    def _in_replica(self, function: Callable[..., Any]) -> Any:
        return self._strategy.run(function, args=(self._batch,))


def _open_task(step: Step, folder: str) -> tuple:
    """Returns a Task and a RecordSource of a few examples, padded to the step's length."""
    config = AlbertConfig.load(step.config)
    if step.task == "masked":
        return _masked(config, step.seq_length, folder)
    words = [f"w{i}" for i in range(config.vocab_size - len(_SPECIAL))]
    vocabulary = os.path.join(folder, "vocab.txt")
    with open(vocabulary, "w", encoding="utf-8") as f:
        f.write("\n".join([*_SPECIAL, *words]))
    if step.task == "compact":
        return _compact(config, step.seq_length, vocabulary, words)
    return _fine_tuning(step, config, vocabulary, words)


def _masked(config: AlbertConfig, seq_length: int, folder: str) -> tuple:
    from albert_tf.data import records
    from albert_tf.tasks.pretraining.data import open_records
    from albert_tf.tasks.pretraining.task import PretrainingTask

    path = os.path.join(folder, "random.tfrecord")
    layout = records.pretraining_features(seq_length, predictions_of(seq_length))
    columns = random_columns(config, seq_length, 2)
    records.write_shard(path, records.encode_examples(columns, layout))
    source = open_records(path, config)
    return PretrainingTask(config, source), source


def _compact(config: AlbertConfig, seq_length: int, vocabulary: str, words: list[str]) -> tuple:
    from albert_tf.data_prep.pretraining_build import build_pretraining_data
    from albert_tf.data_prep.pretraining_options import PretrainingOptions
    from albert_tf.tasks.pretraining.data import open_records
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.tokenization.tokenizer import Tokenizer

    folder = os.path.dirname(vocabulary)
    rng = np.random.default_rng(0)
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as f:
        f.writelines(" ".join(rng.choice(words, 20)) + "\n" for _ in range(seq_length))
    options = PretrainingOptions(max_seq_length=seq_length, record_format="compact")
    output = os.path.join(folder, "records")
    build_pretraining_data([text], Tokenizer.from_file(vocabulary), output, options)
    source = open_records(output, config)
    return PretrainingTask(config, source), source


def _fine_tuning(step: Step, config: AlbertConfig, vocabulary: str, words: list[str]) -> tuple:
    from albert_tf.tokenization.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_file(vocabulary)
    make = {"squad": _squad, "multiple": _multiple_choice}.get(step.task.split("_")[0], _texts)
    folder = os.path.dirname(vocabulary)
    task, examples = make(step, config, tokenizer, words, folder)
    data = task.open_examples(examples, "train", training=True, pad_to_max=True)
    return task, data.source


def _texts(
    step: Step, config: AlbertConfig, tokenizer: object, words: list[str], folder: str
) -> tuple:
    del folder
    from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
    from albert_tf.tasks.tables import TextExample

    labels = ("x", "y", "z") if step.task == "classification" else ()
    values = labels or ("0.5", "1", "2")
    spec = ClassificationSpec(labels, step.seq_length)
    examples = [TextExample(str(i), words[i], None, value, "") for i, value in enumerate(values)]
    return TextClassificationTask(config, tokenizer, spec), examples


def _squad(
    step: Step, config: AlbertConfig, tokenizer: object, words: list[str], folder: str
) -> tuple:
    from albert_tf.tasks.squad.data import read_squad
    from albert_tf.tasks.squad.task import SquadSpec, SquadTask

    version = {"squad_1": "1.1", "squad_2": "2.0"}[step.task]
    context = " ".join(words[:8])
    answer = {"text": words[0], "answer_start": 0}
    qa = {"id": "1", "question": words[9], "answers": [answer], "is_impossible": False}
    data = [{"title": "t", "paragraphs": [{"context": context, "qas": [qa, {**qa, "id": "2"}]}]}]
    path = os.path.join(folder, "squad.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"version": version, "data": data}, f)
    lengths = {"max_seq_length": step.seq_length, "max_query_length": min(64, step.seq_length // 4)}
    task = SquadTask(config, tokenizer, SquadSpec(version, **lengths))
    return task, read_squad(path)


def _multiple_choice(
    step: Step, config: AlbertConfig, tokenizer: object, words: list[str], folder: str
) -> tuple:
    del folder
    from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
    from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask

    options = tuple(words[:_CHOICES])
    examples = [
        MultipleChoiceExample(str(i), words[9], words[10], options, i, "", "") for i in range(2)
    ]
    spec = MultipleChoiceSpec(step.seq_length, max_qa_length=step.seq_length // 2)
    return MultipleChoiceTask(config, tokenizer, spec), examples
