# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run or a fine-tuned model keeps in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.tasks.squad.task import THRESHOLDS_FILE, SquadTask, load_threshold
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.monitors import MetricsLog
from albert_tf.weights.run_folder import (
    METRICS_FILE,
    SEEDS_FILE,
    TASK_FILE,
    BestRecord,
    RunFolder,
    find_checkpoint,
    model_folder,
)
from tests.fuzz.targets.models import golden_weights
from tests.fuzz.targets.target import CONFIG, PIECES, Target, written


def _best(folder: Path) -> Path:
    (folder / "best").mkdir(exist_ok=True)
    (folder / "best/ckpt-4.index").write_bytes(b"")
    BestRecord(4, "accuracy", 0.5, "ckpt-4").save(str(folder / "best"))
    return folder / "best/best.json"


_CLASSIFIER = {
    "task": "text_classification",
    "labels": ["a", "b"],
    "max_seq_length": 16,
    "columns": {"text": "text", "text_pair": None, "label": "label", "id": None},
    "task_name": "custom",
    "best_metric": None,
}


_SQUAD_TASK = {
    "task": SquadTask.name,
    "version": "2.0",
    "n_best_size": 20,
    "max_answer_length": 30,
    "start_n_top": 5,
    "end_n_top": 5,
    "max_seq_length": 16,
    "doc_stride": 4,
    "max_query_length": 6,
}


_RACE_TASK = {
    "task": MultipleChoiceTask.name,
    "max_seq_length": 16,
    "max_qa_length": 8,
}


def _task_file(value: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "vocab.txt").write_text("\n".join(PIECES))
        Tokenizer.from_file(str(folder / "vocab.txt")).save(str(folder))
        (folder / "albert_config.json").write_text(json.dumps(CONFIG))
        return written(TASK_FILE, value)(folder)

    return make


def _run_folder(name: str) -> Callable[[Path], Path]:
    """A run of a few steps in an output directory."""

    def make(folder: Path) -> Path:
        (folder / "checkpoints").mkdir(exist_ok=True)
        weights = golden_weights()
        some = {name: weights[name] for name in sorted(weights)[:2]}
        _store(folder, some).save(4)
        return folder / name

    return make


def _store(folder: Path, weights: dict[str, tf.Variable]) -> CheckpointStore:
    return CheckpointStore(RunFolder(str(folder)), weights, {}, keep_max=2)


def _restore(path: Path) -> None:
    weights = golden_weights()
    store = _store(path.parents[1], {name: weights[name] for name in sorted(weights)[:2]})
    if store.folder.newest():
        store.restore_newest()


TARGETS = {
    "record of the best": Target(_best, lambda path: find_checkpoint(str(path.parents[1])), True),
    "record of the seeds": Target(
        written(SEEDS_FILE, {"best": "seed-1", "seeds": [1, 2]}),
        lambda path: model_folder(str(path.parent)),
        True,
    ),
    "metrics.jsonl": Target(
        written(METRICS_FILE, '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n'),
        lambda path: MetricsLog(RunFolder(str(path.parent)), 1),
    ),
    "task.json of a classifier": Target(
        _task_file(_CLASSIFIER), lambda path: TextClassificationTask.load(str(path.parent)), True
    ),
    "task.json of SQuAD": Target(
        _task_file(_SQUAD_TASK), lambda path: SquadTask.load(str(path.parent)), True
    ),
    "task.json of multiple choice": Target(
        _task_file(_RACE_TASK), lambda path: MultipleChoiceTask.load(str(path.parent)), True
    ),
    "thresholds": Target(
        written(THRESHOLDS_FILE, {"null_threshold": -1.5, "checkpoint": None}),
        lambda path: load_threshold(RunFolder(str(path.parent))),
        True,
    ),
    "checkpoint file of a run": Target(_run_folder("checkpoints/checkpoint"), _restore),
    "index of a run's checkpoint": Target(_run_folder("checkpoints/ckpt-4.index"), _restore),
}
