# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts an ALBERT between formats, bit by bit.

  albert convert-checkpoint --from_path=albert_base_v2.tar.gz --to=hf \\
    --output_dir=albert-hf
  albert convert-checkpoint --from_path=albert-hf --to=tf1 \\
    --output_dir=albert-tf1
  albert convert-checkpoint --from_path=runs/base --to=tf2 \\
    --output_dir=weights
  albert convert-checkpoint --from_path=runs/rte --to=hf \\
    --output_dir=rte-hf

Every variable is checked: if one is missing, unknown or of another shape,
nothing is written. The result is read back and compared.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_overwrite_flag, define_path
from albert_tf.pretrained.locate import NAMES
from albert_tf.weights.conversion import FORMATS, convert


def define_flags() -> None:
    """Defines the flags of this script."""
    define_path(
        "from_path", None, "The model: an output directory or checkpoint of albert_tf, a folder or "
        "archive (.tar.gz, .zip) of the TF1 release, a Hugging Face folder, a SavedModel of "
        f"TF-Hub, {NAMES}, or that of a bundled model.", required=True
    )  # fmt: skip
    flags.DEFINE_enum(
        "to", None, FORMATS, "tf2: an albert_tf checkpoint, albert_config.json and tokenizer.json. "
        "tf1: a checkpoint of the TF1 release, with its variable names. hf: config.json and "
        "model.safetensors, with the head of a fine-tuned model. SavedModels: albert export.",
        required=True,
    )  # fmt: skip
    define_path("output_dir", None, "A new folder for the result.", required=True)
    flags.DEFINE_bool(
        "allow_partial", False, "Accept a model with other heads, such as a fine-tuned one, and "
        "write only the weights that pretrained models have; the others are listed."
    )  # fmt: skip
    define_overwrite_flag()


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    report = convert(
        FLAGS.from_path, FLAGS.to, FLAGS.output_dir, FLAGS.allow_partial, FLAGS.overwrite
    )
    print(f"{len(report.matched)} weights of {report.checkpoint} are in {FLAGS.output_dir}.")
    if report.repeated:
        print(f"{report.positions_note.capitalize()}.")
    for what, names in (("Missing", report.missing), ("Left out", report.unexpected)):
        if names:
            print(f"{what}: {', '.join(names)}.")
