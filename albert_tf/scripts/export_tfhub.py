# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a model as a SavedModel: TF-Hub's encoder or preprocessor, or a
model that reads text.

  albert export --albert_directory=runs/base \\
    --export_path=exports/encoder
  albert export --albert_directory=runs/base \\
    --export_type=preprocessing --export_path=exports/preprocessor
  albert export --albert_directory=runs/rte \\
    --export_path=models/rte/1
  albert export --albert_directory=runs/base --format=tflite \\
    --precision=int8 --export_path=exports/lite
  albert export --albert_directory=runs/base --format=onnx \\
    --export_path=exports/onnx

The encoder and the preprocessor are for hub.KerasLayer. The SavedModel of a
fine-tuned model takes strings. All exports load with nothing but tensorflow
and tensorflow_text.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_overwrite_flag, define_path, refuse_flags
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH
from albert_tf.training.specs import BFLOAT16, FLOAT32


def define_flags() -> None:
    """Defines the flags of this script."""
    define_path(
        "albert_directory", None, "The model to export: the output directory of a run, or anything "
        "that --init_checkpoint takes, such as a checkpoint in it, with configuration and "
        "vocabulary next to the weights.",
        required=True
    )  # fmt: skip
    define_path(
        "export_path", None, "A new folder for the export; for TensorFlow Serving a number, as in "
        "models/rte/1.", required=True
    )  # fmt: skip
    flags.DEFINE_enum(
        "export_type", None, ["model", "model_with_mlm", "preprocessing"], "model: the encoder; "
        "model_with_mlm: with the pretraining heads, as .mlm; preprocessing: the "
        "tokenizer and packing of inputs. Default: the whole model, which reads text if it was "
        "fine-tuned.",
    )  # fmt: skip
    flags.DEFINE_bool(
        "do_lower_case", None, "Whether the vocabulary is lower-cased. Default: as in "
        "tokenizer.json, or true.",
    )  # fmt: skip
    flags.DEFINE_enum(
        "format", "saved_model", ["saved_model", "tflite", "onnx"], "tflite: TensorFlow Lite; "
        "onnx: ONNX, which needs the extra `onnx`. Both are for encoders, classifiers, "
        "taggers, embedders and answerers, and take token ids instead of text.",
    )  # fmt: skip
    flags.DEFINE_enum(
        "precision", FLOAT32, [FLOAT32, BFLOAT16, "int8"], "mixed_bfloat16: a SavedModel computes "
        "in bfloat16, for processors with units for it. int8: TensorFlow Lite's and ONNX's weights "
        "take a quarter of the space, and ONNX Runtime computes faster with them. The report has "
        "the differences from float32.",
    )  # fmt: skip
    flags.DEFINE_integer(
        "max_seq_length", 128, "For --export_type=preprocessing: default length, in tokens.",
        lower_bound=MIN_SEQ_LENGTH,
    )  # fmt: skip
    define_overwrite_flag()


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    if FLAGS.export_type != "preprocessing":
        refuse_flags(["max_seq_length"], "it requires --export_type=preprocessing.")
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.export import export_model

    export_model(
        FLAGS.albert_directory,
        FLAGS.export_path,
        FLAGS.overwrite,
        FLAGS.precision,
        FLAGS.export_type,
        FLAGS.format,
        FLAGS.max_seq_length,
        FLAGS.do_lower_case,
    )
