# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The methods of training that are compared. Each includes its start-up and processing of text."""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from albert_tf.errors import AlbertError
from albert_tf.io import files, removal

LOG_FILE = "log.txt"
_PEER = os.path.join(os.path.dirname(__file__), "peer.py")
#: The scores of fine-tuned models: the task, its steps and its sequence length.
_TASKS = {
    "sst2_accuracy": ("sst-2", 500, 64),
    "cola_correlation": ("cola", 500, 48),
    "stsb_correlation": ("sts-b", 500, 80),
    "rte_accuracy": ("rte", 150, 128),
}

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Trial:
    """One model to train.

    Attributes:
      folder: of its files; log.txt in it has the output of all commands.
      minutes: how long to train it.
      seed: of its weights, masks and order of examples.
    """

    folder: str
    minutes: float
    seed: int

    @property
    def model(self) -> str:
        """Folder of the model."""
        return f"{self.folder}/run"

    def run(self, command: Sequence[str]) -> None:
        """Runs a command.

        Raises:
          AlbertError: it failed.
        """
        os.makedirs(self.folder, exist_ok=True)
        path = f"{self.folder}/{LOG_FILE}"
        with open(path, "a", encoding="utf-8") as log:
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
        if code:
            raise AlbertError(f"{' '.join(command[:3])} failed; the last lines of {path} say why.")

    def fine_tune(self, glue_dir: str) -> dict[str, float]:
        """Fine-tunes on tasks of GLUE with three seeds; returns the medians, and their mean."""
        scores = {}
        for name, (task, steps, length) in _TASKS.items():
            output_dir = f"{self.folder}/{task}"
            self.run(
                [
                    *(sys.executable, "run_classifier.py", "--do_train", "--do_eval"),
                    *(f"--task_name={task}", f"--data_dir={glue_dir}", "--num_seeds=3"),
                    *(f"--init_checkpoint={self.model}", f"--max_seq_length={length}"),
                    *(f"--train_step={steps}", f"--eval_every_steps={steps // 4}"),
                    *(f"--output_dir={output_dir}", f"--random_seed={self.seed}"),
                ]
            )
            values = files.read_object(f"{output_dir}/seeds.json")["values"].values()
            scores[name] = statistics.median(values)
        return {**scores, "downstream": statistics.mean(scores.values())}


def train_budget(trial: Trial) -> dict[str, Any]:
    """Trains as `--time_budget` plans."""
    began = time.monotonic()
    if os.path.exists(trial.folder):  # Of a trial that did not end in its time.
        removal.set_aside(trial.folder, "unfinished")
    records = f"{trial.folder}/records"
    trial.run(
        [
            *(sys.executable, "data_prep/create_pretraining_data.py", "--max_seq_length=128"),
            *(f"--input_file={FLAGS.train_file}", f"--spm_model_file={FLAGS.spm_model_file}"),
            # Pairs of the same sentences teach what STS-B and RTE need.
            *(f"--output_dir={records}", "--record_format=compact", "--repeat_prob=0.2"),
        ]
    )
    left = 60 * trial.minutes - (time.monotonic() - began)
    trial.run(
        [
            *(sys.executable, "run_pretraining.py", "--do_train", f"--input_file={records}"),
            *(f"--albert_config_file={FLAGS.albert_config_file}", f"--output_dir={trial.model}"),
            *("--precision=auto", "--log_every_steps=10", f"--random_seed={trial.seed}"),
            f"--time_budget={left / 60:.2f}",
        ]
    )
    return {"plan": files.read_object(f"{trial.model}/run_config.json")}


def train_transformers(trial: Trial) -> dict[str, Any]:
    """Trains AlbertForMaskedLM of transformers; see peer.py."""
    if not FLAGS.peer_python:
        raise AlbertError("The method transformers needs --peer_python.")
    tokenizer = f"{trial.folder}/tokenizer"
    os.makedirs(tokenizer, exist_ok=True)
    shutil.copy(FLAGS.spm_model_file, f"{tokenizer}/spiece.model")
    options = {
        "tokenizer_dir": tokenizer,
        "albert_config_file": FLAGS.albert_config_file,
        "output_dir": trial.model,
        "minutes": trial.minutes,
        "learning_rate": FLAGS.peer_learning_rate,
        "batch_size": FLAGS.peer_batch_size,
        "short_share": FLAGS.peer_short_share,
        "masked_share": FLAGS.peer_masked_share,
        "precision": FLAGS.peer_precision,
        "seed": trial.seed,
    }
    command = [FLAGS.peer_python, _PEER, "--text", *FLAGS.train_file.split(",")]
    trial.run([*command, *(f"--{name}={value}" for name, value in options.items())])
    return files.read_object(f"{trial.model}/training.json")


METHODS: dict[str, Callable[[Trial], dict[str, Any]]] = {
    "budget": train_budget,
    "transformers": train_transformers,
}
