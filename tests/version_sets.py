# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes tiny records, a run and exports with the installed set of versions.

  python -m tests.version_sets FOLDER

FOLDER gets:

  records/masked, records/compact: records of `text_lines`.
  run: a pretraining run on the compact records, stopped by a signal at step STOP of STEPS.
  run_end.npz: the weights at the end of the same run without the stop.
  encoder, classifier: SavedModels, the second one with text as input.
  lite.tflite: the same encoder for TensorFlow Lite.
  expected.npz: the outputs of all of these for `encoder_inputs` and TEXTS.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.data_prep.pretraining_build import build_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.train_sentencepiece import VocabularySettings, train_sentencepiece
from albert_tf.export.id_formats import TFLITE
from albert_tf.io import files
from albert_tf.keras2 import keras
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.export import ENCODER_TYPE, export_model
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import EvalSpec, RunConfig, TrainSpec
from tests.support.small_tasks import write_run
from tests.training.conftest import TINY_CONFIG

LENGTH, VOCABULARY = 24, 60
STOP, STEPS = 4, 8
TEXTS = ("the naïve people, 1,9", "WANTED! bread & stone (½)", "", "river river 中国 cafe\u0301")
CONFIG = dataclasses.replace(
    TINY_CONFIG,
    num_hidden_layers=2,
    vocab_size=VOCABULARY,
    max_position_embeddings=LENGTH,
    initializer_range=0.2,
)


def text_lines() -> list[str]:
    """Returns sentences, with "" between documents."""
    rng = np.random.default_rng(0)
    words = "the people naïve café stone bread river and x y 1,9 2013, (x) école captain island "
    words += "morning evening mountain children nothing window garden thought between question"
    return [" ".join(rng.choice(words.split(), 6)) + "." if i % 12 else "" for i in range(400)]


def text_file() -> str:
    """Writes `text_lines` to a file in memory; returns its path."""
    path = "ram://version_sets/text.txt"
    files.write_text(path, "\n".join(text_lines()))
    return path


def build_records(vocabulary: str, folder: Path, record_format: str) -> None:
    """Builds records of `text_lines` in two shards, with a SentencePiece model."""
    options = PretrainingOptions(
        max_seq_length=LENGTH,
        max_predictions_per_seq=4,
        record_format=record_format,
        dupe_factor=2 if record_format == "masked" else 1,
        num_shards=2,
    )
    build_pretraining_data([text_file()], Tokenizer.from_file(vocabulary), str(folder), options)


def train(records: Path, folder: Path, stopped: bool = False) -> dict[str, np.ndarray]:
    """Starts or resumes a run of STEPS steps; returns the weights at its end by name.

    If `stopped`, a signal stops the run at step STOP.
    """
    source = open_records(str(records), CONFIG)
    task = PretrainingTask(CONFIG, source)
    config = RunConfig(
        output_dir=str(folder),
        train_batch_size=8,
        eval_batch_size=8,
        num_warmup_steps=2,
        learning_rate=0.01,
        save_checkpoints_steps=STOP,
        log_every_steps=1,
        keep_checkpoint_max=1,
        precision="float32",
        seed=3,
    )
    spec, metrics = TrainSpec.of(source, STEPS), task.metrics

    def stop(*arguments: object) -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return metrics(*arguments)

    if stopped:
        task.metrics = stop
    evaluation = EvalSpec(source.eval_input_fn, every_steps=STOP)
    estimator = Estimator(task, config)
    with contextlib.suppress(SystemExit) if stopped else contextlib.nullcontext():
        estimator.train_and_evaluate(spec, evaluation)
    return {name: value.numpy() for name, value in estimator.model.named_weights().items()}


def encoder_inputs() -> dict[str, np.ndarray]:
    """Returns inputs of an encoder, int32 [2, 10]; the second row is padded."""
    mask = np.ones([2, 10], np.int32)
    mask[1, 7:] = 0
    ids = np.random.default_rng(1).integers(5, VOCABULARY, mask.shape, np.int32) * mask
    return {
        "input_word_ids": ids,
        "input_mask": mask,
        "input_type_ids": ((np.arange(10) > 3) * mask).astype(np.int32),
    }


def outputs(folder: Path) -> dict[str, np.ndarray]:
    """Returns the outputs of the exports in a set's folder by name."""
    import tensorflow_hub as hub
    import tensorflow_text  # noqa: F401 (registers the operations that read text)

    inputs = encoder_inputs()
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    encoded = hub.KerasLayer(str(folder / "encoder"))(tensors)
    results = {f"encoder/{name}": encoded[name] for name in ("pooled_output", "sequence_output")}
    classify = tf.saved_model.load(str(folder / "classifier"))
    results["classifier"] = classify(list(TEXTS))["probabilities"]
    lite = tf.lite.Interpreter(str(folder / "lite.tflite")).get_signature_runner()(**inputs)
    results |= {f"lite/{name}": value for name, value in lite.items()}
    return {name: np.asarray(value) for name, value in results.items()}


def write(folder: Path) -> None:
    """Writes the files of a set; see above."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        settings = VocabularySettings(vocab_size=VOCABULARY, character_coverage=1.0)
        train_sentencepiece([text_file()], str(work / "small"), settings)
        for record_format in ("masked", "compact"):
            build_records(
                str(work / "small.model"), folder / "records" / record_format, record_format
            )
        train(folder / "records/compact", folder / "run", stopped=True)
        np.savez_compressed(
            folder / "run_end.npz", **train(folder / "records/compact", work / "whole")
        )
        run = str(work / "whole")
        export_model(run, str(folder / "encoder"), export_type=ENCODER_TYPE)
        export_model(run, str(work / "lite"), file_format=TFLITE)
        shutil.copy(work / "lite/model.tflite", folder / "lite.tflite")
        tokenizer = Tokenizer.from_file(str(work / "small.model"))
        spec = ClassificationSpec(("no", "yes", "maybe"), LENGTH)
        write_run(TextClassificationTask(CONFIG, tokenizer, spec), work / "classifier")
        export_model(str(work / "classifier"), str(folder / "classifier"))
    np.savez_compressed(folder / "expected.npz", **outputs(folder))


if __name__ == "__main__":
    keras.utils.set_random_seed(1)
    write(Path(sys.argv[1]))
