# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How fast models answer: one text and batches, in every way, beside other libraries.

  python -m benchmarks.inference --peer_python=.venv-peers/torch/bin/python \\
    --output_dir=runs/inference

The models are a preset's shape with random weights, saved once, and the bundled model; all ways
have the same weights, texts and number of threads. Each way runs in a process of its own, which
waits while it is not measured; all take turns. A call goes from NumPy arrays, or texts, to a NumPy
array. Figures are medians over the turns, with the least and the most; `difference` is the largest
absolute one from the Python model's outputs (of the probabilities for classifiers, otherwise of the
pooled output). Each way of each model and shape adds a line to results.jsonl and is not
measured again, so a run that was stopped continues.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from benchmarks.common import add_lines, describe_machine, markdown, read_lines, show_spread, spread
from benchmarks.peers.protocol import Peer, PeerError

RESULTS_FILE = "results.jsonl"
_OURS, _TORCH = "answers", "answers_torch"

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to answer.

    Attributes:
      title: for the table.
      driver: of `benchmarks.peers`.
      way: the name that the driver knows.
      model: the file or folder in `ModelFiles.folder`, or any path.
      dtype: of torch's weights and computations.
      output: the output to compare.
      frozen: tell oneDNN that weights are constant, as docs/export.md does for servers.
    """

    title: str
    driver: str
    way: str
    model: str
    dtype: str = "float32"
    output: str = "pooled_output"
    frozen: bool = False


_TEXT = {"driver": _OURS, "way": "saved_model_text", "output": "probabilities"}
WAYS = {
    "saved_model": Way("SavedModel, ids", _OURS, "saved_model", "saved_model"),
    "saved_model_frozen": Way(
        "SavedModel, ids, constant weights", _OURS, "saved_model", "saved_model", frozen=True
    ),
    "saved_model_bf16_frozen": Way(
        "SavedModel, ids, bf16, constant weights",
        _OURS,
        "saved_model",
        "saved_model_bf16",
        frozen=True,
    ),
    "saved_model_text": Way("SavedModel, text", model="saved_model_text", **_TEXT),
    "saved_model_text_bf16_frozen": Way(
        "SavedModel, text, bf16, constant weights",
        model="saved_model_text_bf16",
        frozen=True,
        **_TEXT,
    ),
    "python": Way("Python", _OURS, "python", ""),
    "tflite": Way("TensorFlow Lite", _OURS, "tflite", "tflite_none"),
    "tflite_int8": Way("TensorFlow Lite int8", _OURS, "tflite", "tflite_int8"),
    "onnx_export": Way("our ONNX export, ONNX Runtime", _TORCH, "onnx_export", "onnx_export"),
    "onnx_int8": Way("our int8 ONNX export, ONNX Runtime", _TORCH, "onnx_export", "onnx_int8"),
    "openvino": Way("our ONNX export, OpenVINO", _TORCH, "openvino", "onnx_export"),
    "openvino_bf16": Way("our ONNX, OpenVINO bf16", _TORCH, "openvino", "onnx_export", "bfloat16"),
    "openvino_int8": Way("our int8 ONNX export, OpenVINO", _TORCH, "openvino", "onnx_int8"),
    "onnx_classifier": Way(
        "our ONNX export of a classifier, ONNX Runtime",
        _TORCH,
        "onnx_export",
        "onnx_classifier",
        output="probabilities",
    ),
    "torch_eager": Way("torch eager", _TORCH, "eager", "hf"),
    "torch_compile": Way("torch.compile", _TORCH, "compile", "hf"),
    "torch_eager_bf16": Way("torch eager bf16", _TORCH, "eager", "hf", "bfloat16"),
    "torch_compile_bf16": Way("torch.compile bf16", _TORCH, "compile", "hf", "bfloat16"),
}


def _define_flags() -> None:
    define_path("output_dir", None, "Folder of results.jsonl and of the models.", required=True)
    define_path("models", "albert_base_v2,albert_tiny_books", "Presets or models.")
    flags.DEFINE_list("shapes", ["1x32", "1x128", "32x128"], "Texts of a call x tokens of a text.")
    flags.DEFINE_list("ways", list(WAYS), f"Of {', '.join(WAYS)}.")
    define_path("peer_python", None, "Python of the other libraries; none: they are left out.")
    flags.DEFINE_integer("turns", 7, "Turns of each way; the median counts.", 1)
    flags.DEFINE_float("seconds", 1.0, "Of a turn, about.", 0.01)
    flags.DEFINE_integer("threads", 0, "Threads of a call; 0: as many as there are cores.", 0)


def parse_shape(shape: str) -> tuple[int, int]:
    """Returns texts and tokens of a shape such as "1x32"; raises AlbertError for another text."""
    rows, _, length = shape.partition("x")
    if not (rows.isdigit() and length.isdigit() and int(rows) > 0 and int(length) > 2):
        raise AlbertError(f"--shapes has {shape!r}; write 1x32, with at least 3 tokens.")
    return int(rows), int(length)


def take_turns(peers: dict[str, Peer], turns: int, seconds: float) -> dict[str, list[float]]:
    """Returns the seconds of a call in each turn, by way."""
    calls = {}
    for name, peer in peers.items():
        peer(2)
        calls[name] = max(1, round(seconds / peer(1)[0]))
    found: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(turns):
        for name, peer in peers.items():
            found[name].append(peer(calls[name])[0] / calls[name])
    return found


def measure(model: Any, shape: str, ways: dict[str, Way]) -> list[dict[str, Any]]:
    """Measures ways in turns; returns their lines.

    Args:
      model: its ModelFiles, prepared.
      shape: such as "1x32".
      ways: by name.
    """
    rows, length = parse_shape(shape)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        inputs = model.write_inputs(os.path.join(folder, "inputs.npz"), rows, length)
        expected, differences = np.load(inputs), {}
        peers: dict[str, Peer] = {}
        for name, way in ways.items():
            outputs = os.path.join(folder, f"{len(peers)}.npy")
            setup = {
                "way": way.way,
                "model": model.path(way.model) if way.model else model.source,
                "dtype": way.dtype,
                "inputs": inputs,
                "outputs": outputs,
                "threads": FLAGS.threads or describe_machine()["cores"],
                "frozen": way.frozen,
                "output": way.output,
            }
            interpreter = sys.executable if way.driver == _OURS else FLAGS.peer_python
            peer = Peer(way.driver, interpreter, setup)
            peers[name] = stack.enter_context(contextlib.closing(peer))
            differences[name] = float(np.abs(np.load(outputs) - expected[way.output]).max())
        seconds = take_turns(peers, FLAGS.turns, FLAGS.seconds)
        return [
            {
                "model": model.name,
                "shape": shape,
                "way": name,
                "seconds": spread(seconds[name]),
                "texts_per_second": spread([rows / value for value in seconds[name]]),
                "difference": differences[name],
                "versions": peer.versions,
            }
            for name, peer in peers.items()
        ]


def chosen_ways() -> dict[str, Way]:
    """Returns the ways that the flags ask for; raises AlbertError for an unknown one."""
    unknown = sorted({*FLAGS.ways} - {*WAYS})
    if unknown:
        raise AlbertError(f"--ways has {', '.join(unknown)}; it takes {', '.join(WAYS)}.")
    return {
        name: WAYS[name] for name in FLAGS.ways if FLAGS.peer_python or WAYS[name].driver == _OURS
    }


def _run() -> None:
    from benchmarks.inference.models import ModelFiles

    ways = chosen_ways()
    for shape in FLAGS.shapes:
        parse_shape(shape)
    path = os.path.join(FLAGS.output_dir, RESULTS_FILE)
    lines = read_lines(path)
    described = describe_machine()
    try:
        for name in FLAGS.models.split(","):
            model = ModelFiles(os.path.join(FLAGS.output_dir, os.path.basename(name)), name)
            model.prepare({way.model for way in ways.values()})
            for shape in FLAGS.shapes:
                known = {x["way"] for x in lines if (x["model"], x["shape"]) == (name, shape)}
                missing = {key: way for key, way in ways.items() if key not in known}
                found = measure(model, shape, missing) if missing else []
                add_lines(path, [{**line, "machine": described} for line in found])
                print(table([x for x in lines if x["model"] == name] + found), flush=True)
                lines += found
    except PeerError as error:
        raise AlbertError(str(error)) from error


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Returns a Markdown table for each model: milliseconds of a text, texts a second of batches.

    The last column has the largest difference of all shapes.
    """
    tables = []
    for model in dict.fromkeys(line["model"] for line in lines):
        own = [line for line in lines if line["model"] == model]
        shapes = list(dict.fromkeys(line["shape"] for line in own))
        heads = [f"{s}, {'ms' if parse_shape(s)[0] == 1 else 'texts/s'}" for s in shapes]
        rows = [["way", *heads, "difference"]]
        for way in dict.fromkeys(line["way"] for line in own):
            found = {line["shape"]: line for line in own if line["way"] == way}
            cells = [_cell(found[s]) if s in found else "" for s in shapes]
            largest = np.max([line["difference"] for line in found.values()])
            rows.append([WAYS[way].title, *cells, f"{largest:.0e}"])
        tables.append(f"{model}\n\n{markdown(rows)}")
    return "\n\n".join(tables)


def _cell(line: dict[str, Any]) -> str:
    if parse_shape(line["shape"])[0] == 1:
        return show_spread(line["seconds"], 1, 1000)
    return show_spread(line["texts_per_second"], 1)


if __name__ == "__main__":
    script.run(_run, _define_flags)
