# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that models convert to and from transformers, and to keras-hub, with unchanged outputs.

  python -m benchmarks.interchange --spm_model_file=30k-clean.model \\
    --transformers_python=.venv-peers/torch/bin/python --keras_hub_python=…

These run in environments of their own (benchmarks/README.md). Prints a table; exits with status 1
if a check failed.
"""

from __future__ import annotations

import glob
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import flags, logging

import albert_tf
from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.log import log
from albert_tf.io.text_files import read_lines
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.conversion import convert
from benchmarks.interchange_peers import TRANSFORMERS_MODELS, probe_inputs

#: Of float32 outputs, relative to values above 1 and absolute below.
TOLERANCE = 1e-5
ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
BOOKS = str(ROOT / "demo" / "data" / "books" / "heldout" / "*.txt")
PEERS = str(pathlib.Path(__file__).with_name("interchange_peers.py"))
#: Of our model.
CONFIG = AlbertConfig(
    vocab_size=30000,
    embedding_size=16,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
)

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    define_path("spm_model_file", None, "SentencePiece model of 30000.", required=True)
    define_path("transformers_python", None, "Python with transformers.", required=True)
    define_path("keras_hub_python", None, "Python with keras-hub; without it, it is left out.")


class OurModel:
    """A small model of ours with random weights, in a folder, and texts with their ids.

    Args:
      folder: for it.
      vocabulary: of the release.
    """

    def __init__(self, folder: str, vocabulary: str) -> None:
        self.folder = folder
        self.model = AlbertPretrainer(CONFIG)
        rng = np.random.default_rng(0)
        weights = self.model.named_weights()
        for variable in weights.values():
            variable.assign_add(rng.normal(scale=0.1, size=variable.shape).astype(np.float32))
        tf.io.gfile.makedirs(folder)
        tokenizer = Tokenizer.from_file(vocabulary)
        write_tf2(folder, CONFIG, tokenizer, {k: v.numpy() for k, v in weights.items()})
        cases = files.read_json(str(GOLDEN / "tokenization_cases.json"), "golden cases")
        texts = [case["text"] for case in cases]
        texts += [line for path in glob.glob(BOOKS) for line in read_lines(path) if line.strip()]
        # transformers reads special pieces that are spelled out in a text as such.
        self.texts = [text for text in texts if "[CLS]" not in text]
        self.texts_file = f"{folder}/texts.json"
        files.write_json(self.texts_file, self.texts)
        self.ids = {text: tokenizer.encode(text) for text in self.texts}


class Checks:
    """Checks as they are made: printed at once, and counted if they failed."""

    def __init__(self) -> None:
        self.failures = 0

    def add(self, what: str, result: str, passed: bool | None) -> None:
        """Prints one line of the table; None for what is told without being a check."""
        self.failures += passed is False
        verdict = {True: "ok", False: "FAILED", None: "–"}[passed]
        print(f"| {what} | {result} | {verdict} |", flush=True)

    def compare(
        self, what: str, found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
    ) -> None:
        """Compares outputs by name; all that are wanted must be there."""
        largest = 0.0
        for name, value in wanted.items():
            other = np.asarray(found[name])
            if other.shape != value.shape:
                largest = np.nan
            else:
                error = np.abs(other - value) / np.maximum(1, np.abs(value))
                largest = np.maximum(largest, error.max())  # Unlike max, keeps NaN.
        self.add(what, f"{largest:.1e} in {len(wanted)} outputs", bool(largest <= TOLERANCE))

    def compare_ids(self, what: str, ours: OurModel, found: Sequence[Sequence[int]]) -> None:
        """Texts with other ids than ours fail the check."""
        odd = [text for text, ids in zip(ours.texts, found) if ids != ours.ids[text]]
        result = f"other ids for {len(odd)} of {len(ours.texts)} texts"
        if odd:
            result += f", the shortest {min(odd, key=len)!r}"
        self.add(what, result, not odd)


def run_peer(python: str, function: str, *arguments: str) -> str:
    """Calls a function of interchange_peers with another Python, and returns what it printed.

    Raises:
      AlbertError: it failed.
    """
    command = [python, PEERS, function, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AlbertError(f"{function} failed with {python}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def our_outputs(model: AlbertPretrainer, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All outputs of a model of ours for inputs by name."""
    outputs = model({name: tf.constant(value, tf.int32) for name, value in inputs.items()})
    return {k: v.numpy() for k, v in outputs.items() if not isinstance(v, list)}


def load(path: str) -> AlbertPretrainer:
    """load_pretrained, of models without all heads too."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* was loaded in part")
        return albert_tf.load_pretrained(path, allow_partial=True)


def check_transformers(checks: Checks, python: str, folder: str) -> None:
    """Models that transformers saves, loaded here; and its own loading of ours."""
    run_peer(python, "save_transformers", folder)
    for name in sorted(os.listdir(folder)):
        inputs = dict(np.load(f"{folder}/{name}/inputs.npz"))
        del inputs["masked_lm_positions"]
        wanted = dict(np.load(f"{folder}/{name}/outputs.npz"))
        model = load(f"{folder}/{name}/safetensors")
        checks.compare(f"transformers → ours: {name}", our_outputs(model, inputs), wanted)
    for name in TRANSFORMERS_MODELS:
        source = f"{folder}/{name}"
        convert(f"{source}/safetensors", "hf", f"{source}/hf")
        run_peer(
            python, "run_transformers", f"{source}/hf", f"{source}/inputs.npz", f"{source}/2.npz"
        )
        checks.compare(
            f"transformers → ours → transformers: {name}",
            np.load(f"{source}/2.npz"),
            np.load(f"{source}/outputs.npz"),
        )
    check_tf1_release(checks, python, folder)


def check_tf1_release(checks: Checks, python: str, folder: str) -> None:
    """The fixture that the TF1 release's programs trained, converted for transformers."""
    expected = np.load(GOLDEN / "tf1_tiny" / "expected.npz")
    names = {"input_ids": "word_ids", "input_mask": "mask", "segment_ids": "type_ids"}
    np.savez(f"{folder}/tf1.npz", **{f"input_{new}": expected[old] for old, new in names.items()})
    convert(str(GOLDEN / "tf1_tiny"), "hf", f"{folder}/tf1")
    run_peer(python, "run_transformers", f"{folder}/tf1", f"{folder}/tf1.npz", f"{folder}/out.npz")
    found = dict(np.load(f"{folder}/out.npz"))
    positions = expected["masked_lm_positions"][..., np.newaxis]
    chosen = np.take_along_axis(found["mlm_logits"], positions, axis=1)
    found["mlm_log_probs"] = tf.nn.log_softmax(chosen).numpy().reshape([12, 120])
    found["sop_log_probs"] = tf.nn.log_softmax(found["sop_logits"]).numpy()
    outputs = ("sequence_output", "pooled_output", "mlm_log_probs", "sop_log_probs")
    wanted = {name: expected[name] for name in outputs}
    checks.compare("TF1 release → ours → transformers", found, wanted)


def check_tokenizers(checks: Checks, python: str, folder: str, ours: OurModel) -> None:
    """The tokenizer of transformers, from the folder that is written for it."""
    run_peer(python, "tokenize_transformers", folder, ours.texts_file, f"{folder}/ids.json")
    checks.compare_ids("ours → transformers", ours, files.read_json(f"{folder}/ids.json", "ids"))


def check_keras_hub(checks: Checks, python: str, folder: str, ours: OurModel) -> None:
    """keras-hub's encoder and tokenizer, from the folder that is written for transformers."""
    inputs = probe_inputs(CONFIG.vocab_size, 24)
    given, found, ids = (f"{folder}/{name}" for name in ("inputs.npz", "outputs.npz", "ids.json"))
    np.savez(given, **inputs)
    run_peer(python, "run_keras_hub", folder, given, found, ours.texts_file, ids)
    del inputs["masked_lm_positions"]
    wanted, outputs = our_outputs(ours.model, inputs), dict(np.load(found))
    checks.compare("ours → keras-hub: encoder", outputs, {name: wanted[name] for name in outputs})
    checks.compare_ids("ours → keras-hub: tokenizer", ours, files.read_json(ids, "ids"))


def _main() -> None:
    logging.set_verbosity(logging.WARNING)
    log.setLevel("WARNING")  # The table alone is printed.
    checks, python = Checks(), FLAGS.transformers_python
    print("| check | found | |\n|---|---|---|")
    checks.add(f"**{run_peer(python, 'describe', 'transformers', 'torch')}**", "", None)
    with tempfile.TemporaryDirectory() as folder:
        check_transformers(checks, python, f"{folder}/models")
        ours = OurModel(f"{folder}/ours", FLAGS.spm_model_file)
        convert(ours.folder, "hf", f"{folder}/hf")
        check_tokenizers(checks, python, f"{folder}/hf", ours)
        if python := FLAGS.keras_hub_python:
            checks.add(f"**{run_peer(python, 'describe', 'keras-hub', 'keras')}**", "", None)
            check_keras_hub(checks, python, f"{folder}/hf", ours)
    sys.exit(checks.failures > 0)


if __name__ == "__main__":
    script.run(_main, define_flags)
