# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that models convert to and from other libraries with unchanged outputs.

  python -m benchmarks.interchange --spm_model_file=30k-clean.model \\
    --transformers_python=.venv-peers/torch/bin/python,.venv-peers/transformers_tf/bin/python \\
    --model_garden_python=.venv-peers/modelgarden/bin/python

Each library runs in its own environment (benchmarks/README.md) and is checked if its Python is
given. If PyTorch is installed in this environment, pytorch_model.bin is read, too; otherwise it
must be rejected. Prints a table; exits with status 1 if a check failed.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import pathlib
import pickle
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
from albert_tf.cli.path_flags import define_path
from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.export.conversion import convert
from albert_tf.export.hub import export_encoder, export_preprocessor
from albert_tf.export.model_folder import ModelFolder
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf2
from benchmarks.interchange_peers import TRANSFORMERS_MODELS
from benchmarks.path_lists import define_path_list

#: Of float32 outputs, relative to values above 1 and absolute below.
TOLERANCE = 1e-5
ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
BOOKS = str(ROOT / "demo" / "data" / "books" / "heldout" / "*.txt")
PEERS = str(pathlib.Path(__file__).with_name("interchange_peers.py"))
#: Of our model and of that which interchange_peers.save_model_garden makes.
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
    define_path_list(
        "transformers_python", [], "Pythons with transformers: with PyTorch, models are exchanged; "
        "without, its tokenizers are tried alone."
    )  # fmt: skip
    define_path("model_garden_python", None, "Python with tf-models-official.")


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

    def compare_ids(
        self, what: str, ours: OurModel, found: Sequence[Sequence[int]], exact: bool
    ) -> None:
        """Counts texts with other ids than ours; they fail the check if it is exact."""
        odd = [text for text, ids in zip(ours.texts, found) if ids != ours.ids[text]]
        result = f"other ids for {len(odd)} of {len(ours.texts)} texts"
        if odd:
            result += f", the shortest {min(odd, key=len)!r}"
        self.add(what, result, not odd if exact else None)


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
    has_torch = importlib.util.find_spec("torch") is not None
    for name in sorted(os.listdir(folder)):
        inputs = dict(np.load(f"{folder}/{name}/inputs.npz"))
        del inputs["masked_lm_positions"]
        wanted = dict(np.load(f"{folder}/{name}/outputs.npz"))
        check = f"transformers → ours: {name}, safetensors"
        checks.compare(check, our_outputs(load(f"{folder}/{name}/safetensors"), inputs), wanted)
        if has_torch:
            model = load(f"{folder}/{name}/bin")
            checks.compare(f"transformers → ours: {name}, .bin", our_outputs(model, inputs), wanted)
        else:
            check_refused(checks, f"transformers → ours: {name}, .bin", f"{folder}/{name}/bin")
    check_payload(checks, f"{folder}/plain/bin")
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


def check_refused(checks: Checks, what: str, path: str) -> None:
    """Loading must end in one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            albert_tf.load_pretrained(path)
        checks.add(what, "loaded", False)
    except AlbertError as error:
        reason = "PyTorch is not installed" if "not installed" in str(error) else "weights alone"
        checks.add(what, f"refused ({reason})", True)


class _Payload:
    """What runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


def check_payload(checks: Checks, folder: str) -> None:
    """A pytorch_model.bin that runs a command must be refused, and the command not run."""
    ran = os.path.join(folder, "ran")
    path = os.path.join(folder, "pytorch_model.bin")
    payload = {"albert.pooler.bias": _Payload(f"touch '{ran}'")}
    with open(path, "wb") as file:
        pickle.dump(payload, file)
    check_refused(checks, "a pickle that runs a command", folder)
    if importlib.util.find_spec("torch"):
        import torch

        torch.save(payload, path)
        check_refused(checks, "the same, saved by torch", folder)
    ran = os.path.exists(ran)
    checks.add("the command", "ran" if ran else "not run", not ran)


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
    """The tokenizers of transformers, from the folder that is written for it."""
    convert(ours.folder, "hf", folder)
    run_peer(python, "tokenize_transformers", folder, ours.texts_file, f"{folder}/ids.json")
    for kind, ids in files.read_json(f"{folder}/ids.json", "ids").items():
        checks.compare_ids(f"ours → transformers: {kind}", ours, ids, exact=True)


def check_model_garden(checks: Checks, python: str, folder: str, ours: OurModel) -> None:
    """Model Garden's own exports, loaded here; and ours in its environment."""
    run_peer(python, "save_model_garden", folder, FLAGS.spm_model_file)
    inputs = dict(np.load(f"{folder}/inputs.npz"))
    ours.model.config.to_json(f"{folder}/encoder/{CONFIG_FILE}")
    model = load(f"{folder}/encoder")
    wanted = dict(np.load(f"{folder}/outputs.npz"))
    del wanted["default"]
    checks.compare("Model Garden → ours: encoder with mlm", our_outputs(model, inputs), wanted)

    exports = f"{folder}/our_encoder", f"{folder}/our_preprocessor"
    with contextlib.redirect_stdout(None):
        export_encoder(ModelFolder(ours.folder), exports[0], with_heads=True)
        export_preprocessor(ModelFolder(ours.folder), exports[1], 64)
    wanted = our_outputs(ours.model, inputs)
    for function, names in (
        ("run_hub", ("sequence_output", "pooled_output", "mlm_logits", "sop_logits")),
        ("run_model_garden", ("sequence_output", "pooled_output")),
    ):
        run_peer(python, function, exports[0], f"{folder}/inputs.npz", f"{folder}/{function}.npz")
        found = np.load(f"{folder}/{function}.npz")
        check = f"ours → Model Garden: {function}"
        checks.compare(check, found, {name: wanted[name] for name in names})
    for check, preprocessor, exact in (
        ("ours → Model Garden: preprocessor", exports[1], True),
        ("Model Garden's own preprocessor", f"{folder}/preprocessor", False),
    ):
        ids = f"{folder}/ids.json"
        run_peer(python, "tokenize_hub", preprocessor, ours.texts_file, ids)
        checks.compare_ids(check, ours, files.read_json(ids, "ids"), exact)


def _main() -> None:
    logging.set_verbosity(logging.WARNING)
    checks = Checks()
    print("| check | found | |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ours = OurModel(f"{folder}/ours", FLAGS.spm_model_file)
        for n, python in enumerate(FLAGS.transformers_python):
            versions = run_peer(python, "describe_transformers")
            checks.add(f"**{versions}**", "", None)
            if "torch" in versions:
                check_transformers(checks, python, f"{folder}/{n}")
            check_tokenizers(checks, python, f"{folder}/tokenizers{n}", ours)
        if FLAGS.model_garden_python:
            checks.add(
                f"**{run_peer(FLAGS.model_garden_python, 'describe_model_garden')}**", "", None
            )
            check_model_garden(checks, FLAGS.model_garden_python, f"{folder}/garden", ours)
    sys.exit(checks.failures > 0)


def main() -> None:
    """Runs the benchmark."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
