# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts the parameters of the models in Tables 1 to 4 and explains the published numbers.

No model is built: `AlbertConfig.count_parameters` computes what the tests compare with real models.
"""

from __future__ import annotations

import dataclasses

from albert_tf.config import AlbertConfig
from benchmarks.paper.recipes import load_recipe

TABLES = ("table1", "table2", "table3", "table4")


@dataclasses.dataclass(frozen=True)
class Count:
    """A model's parameters, BERT's counted like ALBERT's.

    Attributes:
      model: the rows with this model.
      published: millions; None where the paper has no number.
      encoder: embeddings (30,000 pieces, 512 positions, 2 types, layer normalisation), projection,
        layers and pooler.
      without_pooler: the same without the pooler's H × H + H.
      pretraining: with the masked LM head (the output embeddings are the input's) and the sentence
        order head, which is all that pretraining trains.
      wide_positions: `encoder`, were positions and types embedded in H instead of E dimensions.
    """

    model: str
    published: int | None
    encoder: int
    without_pooler: int
    pretraining: int
    wide_positions: int

    def origin(self) -> str:
        """Which of the counts is the published number, rounded to millions."""
        if self.published is None:
            return "not published"
        with_pooler = round(self.encoder / 1e6) == self.published
        without = round(self.without_pooler / 1e6) == self.published
        if with_pooler or without:
            both = "with or without pooler"
            return (
                both if with_pooler and without else ("with" * with_pooler or "without") + " pooler"
            )
        if round(self.wide_positions / 1e6) == self.published:
            return "with pooler, if positions had width H"
        return "none of these"


def count(model: str, config: AlbertConfig, published: int | None) -> Count:
    """Counts one model."""
    found = config.count_parameters()
    tables = config.max_position_embeddings + config.type_vocab_size
    wider = tables * (config.hidden_size - config.embedding_size)
    return Count(
        model,
        published,
        found["encoder"],
        found["encoder"] - found["pooler"],
        found["total"],
        found["encoder"] + wider,
    )


def counts() -> list[Count]:
    """All models of the tables, each once, in the order in which they first appear."""
    models: dict[AlbertConfig, tuple[list[str], int | None]] = {}
    for table in TABLES:
        for row in load_recipe(table, "paper").rows:
            names, _ = models.setdefault(row.config, ([], row.published.get("parameters")))
            if row.name not in names:
                names.append(row.name)
    return [count(", ".join(names), config, p) for config, (names, p) in models.items()]


def markdown() -> str:
    """The counts as a table."""
    text = [
        "| model | published | encoder | without pooler | pretraining | the published number is |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for found in counts():
        published = f"{found.published}M" if found.published else "–"
        text.append(
            f"| {found.model} | {published} | {found.encoder:,} | {found.without_pooler:,} | "
            f"{found.pretraining:,} | {found.origin()} |"
        )
    return "\n".join(text)


def define_flags() -> None:
    """`parameters` has no flags."""


def main() -> None:
    """Prints the table."""
    print(markdown())
