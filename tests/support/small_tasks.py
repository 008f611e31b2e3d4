# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""All tasks, with a few examples made of 35 words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data import records
from albert_tf.data.pipeline import RecordSource
from albert_tf.data_prep.pretraining_build import build_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.embedding.data import EmbeddingExample, EmbeddingSpec
from albert_tf.tasks.embedding.task import EmbeddingTask
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.tasks.squad.data import read_squad
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.tables import TextExample
from albert_tf.tasks.tagging.data import TaggingSpec, tagged_texts
from albert_tf.tasks.tagging.task import TaggingTask
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.specs import EvalSpec
from albert_tf.training.task import Task
from albert_tf.weights.run_folder import BestRecord, RunFolder
from tests.support.builders import vocabulary, write_vocabulary
from tests.training.conftest import LENGTH, PREDICTIONS, pretraining_columns

WORDS = [f"w{i}" for i in range(35)]
PIECES = vocabulary(WORDS)
PRETRAINING = ("masked", "compact")
FINE_TUNING = (
    "classification",
    "regression",
    "squad_1",
    "squad_2",
    "multiple_choice",
    "tagging",
    "embedding",
)


class SmallTask(NamedTuple):
    """A task with training and evaluation data."""

    task: Task
    train: RecordSource
    held_out: EvalSpec


def open_small_task(
    name: str,
    config: AlbertConfig,
    folder: Path,
    *,
    examples: int = 16,
    max_seq_length: int = LENGTH,
    pad_to_max: bool = False,
    dropout_rate: float = 0.1,
) -> SmallTask:
    """Opens a task with data, which it writes if the folder does not have it yet.

    Args:
      name: one of PRETRAINING and FINE_TUNING.
      config: with the vocabulary size of PIECES.
      folder: for the data.
      examples: number of examples, for training and evaluation alike; approximate for "compact".
      max_seq_length: for fine-tuning; in pretraining it is LENGTH.
      pad_to_max: for fine-tuning, pad all batches to this length.
      dropout_rate: of the task's head.
    """
    folder = Path(folder) / f"{name}-{examples}"
    if not folder.exists():
        folder.mkdir(parents=True)
        write_vocabulary(folder, WORDS)
    if name == "masked":
        return _pretraining(config, _masked_records(folder, examples))
    if name == "compact":
        return _pretraining(config, _compact_records(folder, examples))
    tokenizer = Tokenizer.from_file(str(folder / "vocab.txt"))
    if name.startswith("squad"):
        version = {"squad_1": "1.1", "squad_2": "2.0"}[name]
        path = folder / "squad.json"
        if not path.exists():
            path.write_text(json.dumps(squad_content(version, examples)))
        lengths = {"max_seq_length": max_seq_length, "max_query_length": 4, "doc_stride": 4}
        spec = SquadSpec(version, start_n_top=2, end_n_top=2, n_best_size=3, **lengths)
        task = SquadTask(config, tokenizer, spec, dropout_rate)
        data = read_squad(str(path))
    elif name == "multiple_choice":
        spec = MultipleChoiceSpec(max_seq_length=max_seq_length, max_qa_length=6)
        task = MultipleChoiceTask(config, tokenizer, spec, dropout_rate)
        data = _questions(examples)
    elif name == "embedding":
        task = EmbeddingTask(config, tokenizer, EmbeddingSpec(max_seq_length), dropout_rate)
        pairs = [(_sentence(3 + 7 * i % 25, i), _sentence(3, 99 - i)) for i in range(examples)]
        data = [EmbeddingExample(pair, None, f"file:{i}") for i, pair in enumerate(pairs)]
    elif name == "tagging":
        task = TaggingTask(config, tokenizer, TaggingSpec(("x", "y"), max_seq_length), dropout_rate)
        sentences = (_sentence(3 + 7 * i % 25, i).split() for i in range(examples))
        rows = ({"tokens": x, "tags": ["xy"[w < "w2"] for w in x]} for x in sentences)
        data = tagged_texts(("file", row) for row in rows)
    else:
        labels = ("x", "y") if name == "classification" else ()
        spec = ClassificationSpec(labels, max_seq_length)
        task = TextClassificationTask(config, tokenizer, spec, dropout_rate)
        data = _texts(examples, labels or ("0.5", "4.5"))
    options = {"pad_to_max": pad_to_max}
    train = task.open_examples(data, "train", training=True, **options)
    held_out = task.open_examples(data, "eval", **options)
    spec = EvalSpec(held_out.source.eval_input_fn, examples=held_out)
    return SmallTask(task, train.source, spec)


def _sentence(words: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def _pretraining(config: AlbertConfig, paths: str) -> SmallTask:
    source = open_records(paths, config)
    return SmallTask(PretrainingTask(config, source), source, EvalSpec(source.eval_input_fn))


def _masked_records(folder: Path, examples: int) -> str:
    """Writes three shards of unequal size."""
    features = records.pretraining_features(LENGTH, PREDICTIONS)
    sizes = np.diff([0, examples // 2, examples // 2 + examples // 8, examples])
    paths = [str(folder / f"shard-{i}.tfrecord") for i in range(len(sizes))]
    for i, (path, size) in enumerate(zip(paths, sizes)):
        if not Path(path).exists():
            columns = pretraining_columns(size, seed=i)
            records.write_shard(path, records.encode_examples(columns, features))
    return ",".join(paths)


def _compact_records(folder: Path, examples: int) -> str:
    paths = folder / "records"
    if not paths.exists():
        lines = [_sentence(6, i) if i % 20 else "" for i in range(6 * examples)]
        (folder / "text.txt").write_text("\n".join(lines))
        options = PretrainingOptions(
            max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS, record_format="compact"
        )
        inputs = [str(folder / "text.txt")], Tokenizer.from_file(str(folder / "vocab.txt"))
        build_pretraining_data(*inputs, str(paths), options)
    return str(paths)


def _texts(examples: int, labels: tuple[str, str]) -> list[TextExample]:
    return [
        TextExample(str(i), _sentence(3 + 7 * i % 25, i), None, labels[i % 2], f"file:{i}")
        for i in range(examples)
    ]


def _questions(examples: int) -> list[MultipleChoiceExample]:
    options = tuple(WORDS[:3])
    return [
        MultipleChoiceExample(
            str(i), _sentence(8 + 5 * i % 12, i), _sentence(3, 99 - i), options, i % 3, "", f"f:{i}"
        )
        for i in range(examples)
    ]


def squad_content(version: str, examples: int) -> Mapping[str, object]:
    """Returns the content of a SQuAD file; half of the questions of 2.0 are unanswerable."""
    answer = {"text": WORDS[3], "answer_start": len(" ".join(WORDS[:3])) + 1}
    qas = []
    for i in range(examples):
        answerable = version == "1.1" or i % 2 == 1
        qas.append({"id": f"q{i}", "question": _sentence(3, i), "answers": [answer] * answerable})
        if version == "2.0":
            qas[-1]["is_impossible"] = not answerable
    paragraph = {"context": " ".join(WORDS[:12]), "qas": qas}
    return {"version": version, "data": [{"title": "T", "paragraphs": [paragraph]}]}


def write_run(task: Task, folder: Path) -> None:
    """Writes an output directory of the task, with random weights."""
    write_best(task.build_model(), folder)
    task.save_files(str(folder))


def write_best(model: AlbertModel, folder: Path) -> None:
    """Changes a model's weights at random and writes them as the best of an output directory."""
    for variable in model.named_weights().values():
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    store = CheckpointStore(RunFolder(str(folder)), model.named_weights(), {}, 1)
    store.save_best(BestRecord(1, "x", 1.0, "ckpt-1"))
