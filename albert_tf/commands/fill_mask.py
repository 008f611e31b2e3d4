# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicts the words in place of [MASK] in a text, the most probable first.

  albert fill-mask albert_tiny_books "It was the [MASK] of times."
  albert fill-mask runs/base "The [MASK] of the [MASK]." --top_k=3 --json
  albert fill-mask runs/base --input_file=texts.txt

MODEL is an output directory of pretraining, a release, a Hugging Face folder,
or a name to download. Each [MASK] stands for one piece of the vocabulary. With
several, the results are the best combinations. In Python:
`albert_tf.load_pretrained(MODEL).fill_mask(text)`.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS
from albert_tf.commands.common import define_use_flags, input_lines, open_pretrained, show


def define_flags() -> None:
    """Defines the flags of this command."""
    define_use_flags("File with one text per line, or a table with a column `text`.")
    flags.DEFINE_integer("top_k", 5, "Number of results for each text.", 1)


@script.command(define_flags, "MODEL", "[TEXT…]")
def main(path: str, *given: str) -> None:
    """Runs the command."""
    texts, results = input_lines(given), []
    model = open_pretrained(path)
    for text in texts:
        filled = model.fill_mask(text, FLAGS.top_k)
        rows = [(f"{100 * f.score:.3g}%", " ".join(f.words), f.text) for f in filled]
        rows = [("", "", ""), *rows] if results else rows  # A line between the texts.
        results.append(({"text": text, "filled": [f._asdict() for f in filled]}, rows))
    show(results)
