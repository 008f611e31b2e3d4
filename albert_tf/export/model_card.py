# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The model card: README.md of an export, made from the files beside the weights."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.config import AlbertConfig
from albert_tf.tokenization.tokenizer import TokenizerSpec
from albert_tf.version import __version__

CARD_FILE = "README.md"


class Kind(NamedTuple):
    """A kind of export: a title, and Python code that uses it, with {name} for its name."""

    title: str
    example: str


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """Facts about a model for its card; unknown ones are empty.

    Attributes:
      name: of the export.
      config: of the model; None for a preprocessor.
      parameters: number of parameters.
      tokenizer: specification of the tokenizer.
      origin: a sentence on the source of the weights.
      task: the task of a fine-tuned model, as in task.json.
      training: settings, as in run_config.json.
      data: as in RecordSource.description.
      evaluation: metrics by name, as in eval_results.json.
      use: the intended use, the rights in the training text, the harm that errors may do.
    """

    name: str
    config: AlbertConfig | None = None
    parameters: int = 0
    tokenizer: TokenizerSpec | None = None
    origin: str = ""
    task: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    use: str = ""


def model_card(kind: Kind, signatures: Mapping[str, Any], facts: ModelFacts, check: str) -> str:
    """Returns the card as Markdown.

    `signatures` are concrete functions, and `check` the result of the self-check in sentences.
    """
    sections = [
        f"# {kind.title}: {facts.name}",
        f"ALBERT (Lan et al., ICLR 2020) for TensorFlow 2, written by albert_tf {__version__}.",
        f"```python\n{kind.example.format(name=facts.name)}\n```",
    ]
    rows = [
        (f"`{name}`", _specs(_inputs(function)), _specs(function.structured_outputs))
        for name, function in signatures.items()
    ]
    if rows:
        sections += ["## Signatures", _markdown_table(("signature", "inputs", "outputs"), rows)]
    model = {"parameters": f"{facts.parameters:,}"} if facts.parameters else {}
    sections += _section("Model", {**model, **(facts.config.to_dict() if facts.config else {})})
    sections += _section("Vocabulary", facts.tokenizer.to_dict() if facts.tokenizer else {})
    sections += _section("Task", facts.task)
    if facts.origin:
        sections += ["## Training", facts.origin]
        if not facts.training:
            sections.append("How they were trained is not recorded beside the weights.")
        sections += _section("Settings", facts.training, "###")
        sections += _section("Data", facts.data, "###")
    sections += _section("Evaluation", facts.evaluation)
    sections += ["## Check", check]
    if facts.use:
        sections += ["## Use", facts.use]
    else:
        sections += [
            "## To be filled in",
            "What the model is meant for, what its training text may be used for, and whom its "
            "errors and biases may harm, is recorded nowhere beside the weights; write it here.",
        ]
    return "\n\n".join(sections) + "\n"


def _section(title: str, values: Mapping[str, Any], level: str = "##") -> list[str]:
    rows = list(_rows(values))
    return [f"{level} {title}", _markdown_table(("", ""), rows)] if rows else []


def _rows(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Returns nested values as rows, without empty ones, and paths without their folders."""
    rows = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += _rows(value, f"{name}: ")
        elif isinstance(value, (list, tuple)):
            rows.append((name, ", ".join(_cell(entry) for entry in value)))
        elif value is not None and value != "":
            rows.append((name, _cell(value)))
    return [row for row in rows if row[1]]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return " ".join(_cell(entry) for entry in value.values())
    text = str(value)
    # Folders of the machine that trained the model are private.
    return os.path.basename(text.rstrip("/")) if os.path.isabs(text) or "://" in text else text


def _inputs(function: Any) -> dict[str, Any]:
    """Returns the specs of a function's arguments by name, positional ones included."""
    positional, by_name = function.structured_input_signature
    return {**{spec.name: spec for spec in positional if hasattr(spec, "dtype")}, **by_name}


def _specs(specs: Mapping[str, Any]) -> str:
    texts = []
    for name, spec in specs.items():
        sizes = ", ".join("?" if n is None else str(n) for n in spec.shape)
        texts.append(f"`{name}` {spec.dtype.name} [{sizes}]")
    return ", ".join(texts)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown, without a line end; `head` has the titles of the columns."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
