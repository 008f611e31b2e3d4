# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Figure 1 of the paper: how far each layer moves its input, as L2 distance and as angle."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from benchmarks.common import load_pyplot, markdown, save_figure
from benchmarks.paper.corpus import documents

FLAGS = flags.FLAGS
RESULT_FILE = "figure1.json"
_BATCH_SIZE = 8

Batch = Mapping[str, Any]


def define_flags() -> None:
    """Flags of `figure1`."""
    define_path("checkpoints", None, "Models to compare: name=path,name=path.", required=True)
    define_path(
        "input_file", None, "Text to measure on: a comma list of files and globs; one sentence a "
        "line, a blank line between documents. Each model reads it with its own tokenizer, as "
        "[CLS] text [SEP].", required=True
    )  # fmt: skip
    flags.DEFINE_integer("max_seq_length", 128, "Tokens of a sequence cut from text.", 8)
    flags.DEFINE_integer("num_sequences", 256, "Measure on the first so many sequences.", 1)
    define_path("output_dir", None, f"Folder for {RESULT_FILE} and figure1.png.", required=True)


class LayerChanges:
    """Sums up what the layers of one model do to its tokens."""

    def __init__(self) -> None:
        self.tokens = 0
        self._sums: np.ndarray | None = None  # [2, layers]

    def add(self, states: Sequence[np.ndarray], mask: np.ndarray) -> None:
        """Adds a batch.

        Args:
          states: the first layer's input and every layer's output, float [B, S, H] each.
          mask: int [B, S]; positions with 0 are padding and do not count.
        """
        real = [np.asarray(state, np.float64)[mask > 0] for state in states]  # [tokens, H]
        norms = [np.linalg.norm(state, axis=1, keepdims=True) for state in real]
        units = [state / np.maximum(norm, 1e-30) for state, norm in zip(real, norms)]
        sums = []
        for before, after, u, v in zip(real, real[1:], units, units[1:]):
            # Of small angles the arc cosine would lose half of the digits.
            angles = 2 * np.arctan2(np.linalg.norm(u - v, axis=1), np.linalg.norm(u + v, axis=1))
            distances = np.linalg.norm(after - before, axis=1)
            sums.append((distances.sum(), np.degrees(angles).sum()))
        self._sums = np.transpose(sums) + (0 if self._sums is None else self._sums)
        self.tokens += len(real[0])

    def means(self) -> list[dict[str, float]]:
        """Of each layer: `l2_distance` and `angle` (degrees), means over the tokens."""
        names = ("l2_distance", "angle")
        rows = (self._sums / self.tokens).T.tolist()
        return [
            {"layer": number, **dict(zip(names, row))} for number, row in enumerate(rows, start=1)
        ]


def measure(encoder: Any, batches: Iterable[Batch]) -> LayerChanges:
    """What the layers of an AlbertEncoder do to the tokens of some batches."""
    changes = LayerChanges()
    for batch in batches:
        states = [encoder.embed(batch), *encoder(batch)["encoder_outputs"]]
        changes.add([state.numpy() for state in states], np.asarray(batch["input_mask"]))
    return changes


def text_batches(
    paths: Sequence[str], tokenizer: Any, max_seq_length: int, num_sequences: int
) -> Iterator[Batch]:
    """Sequences [CLS] text [SEP] of sentence files, each of one document.

    Yields:
      `input_word_ids` and `input_mask`, int32 [B, S].
    """
    room, left, rows = max_seq_length - 2, num_sequences, []
    for document in chain.from_iterable(map(documents, paths)):
        ids = list(chain.from_iterable(tokenizer.encode_batch(document)))
        parts = [ids[start : start + room] for start in range(0, len(ids), room)][:left]
        left -= len(parts)
        rows += [[tokenizer.cls_id, *part, tokenizer.sep_id] for part in parts]
        while len(rows) >= _BATCH_SIZE or (rows and not left):
            yield _padded(rows[:_BATCH_SIZE], tokenizer.pad_id)
            rows = rows[_BATCH_SIZE:]
        if not left:
            return
    if rows:
        yield _padded(rows, tokenizer.pad_id)


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> Batch:
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = np.fromiter(chain.from_iterable(rows), np.int32)
    return {"input_word_ids": ids, "input_mask": mask.astype(np.int32)}


def describe(name: str, model: Any, changes: LayerChanges) -> dict[str, Any]:
    """The entry of a model in the results."""
    keys = ("hidden_size", "embedding_size", "num_hidden_layers", "parameter_sharing")
    return {
        "name": name,
        **{key: getattr(model.config, key) for key in keys},
        "tokens": changes.tokens,
        "layers": changes.means(),
    }


def table(models: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown: a row for each layer, distance and degrees of each model."""
    rows = [["layer", *(f"{model['name']}: distance, degrees" for model in models)]]
    for number in range(max(len(model["layers"]) for model in models)):
        cells = [model["layers"][number : number + 1] for model in models]
        shown = [f"{c[0]['l2_distance']:.2f}, {c[0]['angle']:.1f}" if c else "" for c in cells]
        rows.append([str(number + 1), *shown])
    return markdown(rows)


def draw(models: Sequence[Mapping[str, Any]]) -> Any:
    """A figure with L2 distance and angle between each layer's input and output."""
    figure, panels = load_pyplot().subplots(1, 2, figsize=(8, 4), layout="constrained")
    figure.suptitle("Input against output of each layer (paper, Figure 1)")
    for panel, metric, label in zip(
        panels, ("l2_distance", "angle"), ("L2 distance", "angle (degrees)")
    ):
        for model in models:
            numbers = [layer["layer"] for layer in model["layers"]]
            values = [layer[metric] for layer in model["layers"]]
            panel.plot(numbers, values, "o-", markersize=4, label=model["name"])
        panel.set(xlabel="layer", ylabel=label)
        panel.set_ylim(bottom=0)
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.grid(True, alpha=0.3)
    panels[0].legend()
    return figure


def _named_paths(text: str) -> dict[str, str]:
    """Paths by name, of name=path,name=path."""
    paths: dict[str, str] = {}
    for item in text.split(","):
        name, equals, path = item.partition("=")
        if not (name and equals and path):
            raise AlbertError(f"--checkpoints: {item!r} is not of the form name=path.")
        if name in paths:
            raise AlbertError(f"--checkpoints: the name {name!r} is given twice.")
        paths[name] = path
    return paths


def main() -> None:
    """Runs the command."""
    from albert_tf.weights.pretrained_model import load_pretrained

    paths = _named_paths(FLAGS.checkpoints)
    text_files = files.expand_globs(FLAGS.input_file, "text file")
    models = []
    for name, path in paths.items():
        model = load_pretrained(path, allow_partial=True)
        if model.tokenizer is None:
            raise AlbertError(f"There is no tokenizer with {path}; put one there.")
        batches = text_batches(
            text_files, model.tokenizer, FLAGS.max_seq_length, FLAGS.num_sequences
        )
        changes = measure(model.encoder, batches)
        if not changes.tokens:
            raise AlbertError(f"{FLAGS.input_file} holds no text.")
        models.append(describe(name, model, changes))
    print(table(models))
    source = "Lan et al. (2020), Figure 1"
    path = os.path.join(FLAGS.output_dir, RESULT_FILE)
    files.write_json(path, {"experiment": "figure1", "source": source, "models": models})
    save_figure(draw(models), os.path.join(FLAGS.output_dir, "figure1.png"))
    print(f"Written to {path}, with a plot beside it.")
