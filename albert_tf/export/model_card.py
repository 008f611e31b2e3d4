# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The model card: README.md of an export, made of what the files beside the weights say."""

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
    """What is exported.

    Attributes:
      title: of the card.
      example: of use, Python with {name} for the name of the export.
    """

    title: str
    example: str


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """What is known of a model; what is not known is empty.

    Attributes:
      name: what the export is called.
      config: of the model; None for a preprocessor alone.
      parameters: their number.
      tokenizer: of its vocabulary.
      origin: what the weights were read from, and when in training they were taken.
      task: what a fine-tuned model does, as in task.json.
      training: settings, as in run_config.json.
      data: as RecordSource.description tells.
      evaluation: metrics by name, as in eval_results.json.
      use: what the model is meant for, what its text may be used for, whom its errors may harm.
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
    """The card as Markdown.

    Args:
      kind: what it is.
      signatures: concrete functions by name; empty for what is no SavedModel.
      facts: of the model.
      check: the outcome of the self-check, in sentences.
    """
    sections = [
        f"# {kind.title}: {facts.name}",
        f"ALBERT (Lan et al., ICLR 2020) for TensorFlow 2, written by albert_tf {__version__}.",
        f"```python\n{kind.example.format(name=facts.name)}\n```",
    ]
    if signatures:
        rows = _signature_rows(signatures)
        sections += ["## Signatures", _table(("signature", "takes", "gives"), rows)]
    model = {"parameters": f"{facts.parameters:,}"} if facts.parameters else {}
    if facts.config:
        model.update(facts.config.to_dict())
    sections += _section("Model", model)
    sections += _section(
        "Vocabulary", dataclasses.asdict(facts.tokenizer) if facts.tokenizer else {}
    )
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
    return [f"{level} {title}", _table(("", ""), rows)] if rows else []


def _rows(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as rows; what says nothing is left out, and paths lose their folders."""
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
    # Where things lay when the model was trained is nobody's business.
    return os.path.basename(text.rstrip("/")) if os.path.isabs(text) or "://" in text else text


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
                     for line in lines)  # fmt: skip


def _signature_rows(signatures: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (
            f"`{name}`",
            _specs(_inputs(function)),
            _specs(function.structured_outputs),
        )
        for name, function in signatures.items()
    ]


def _inputs(function: Any) -> dict[str, Any]:
    """Specs of a function's arguments by name, whether they go by position or by name."""
    by_position, by_name = function.structured_input_signature
    given = {spec.name: spec for spec in by_position if hasattr(spec, "dtype")}
    return {**given, **by_name}


def _specs(specs: Mapping[str, Any]) -> str:
    return ", ".join(
        f"`{name}` {spec.dtype.name} {['?' if n is None else n for n in spec.shape]}".replace(
            "'", ""
        )
        for name, spec in specs.items()
    )
