# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a model as a SavedModel: TF-Hub's encoder or preprocessor, or a model that reads text.

  python export_tfhub.py --albert_directory=runs/base --export_type=model_with_mlm \\
    --export_path=exports/encoder
  python export_tfhub.py --albert_directory=runs/base --export_type=preprocessing \\
    --export_path=exports/preprocessor
  python export_tfhub.py --albert_directory=runs/rte --export_type=classifier \\
    --export_path=models/rte/1
  python export_tfhub.py --albert_directory=runs/base --format=tflite --quantization=int8 \\
    --export_path=exports/lite
  python export_tfhub.py --albert_directory=runs/base --format=onnx --export_path=exports/onnx

The encoder and the preprocessor are for hub.KerasLayer. The SavedModel of a fine-tuned model takes
strings. All exports load with nothing but tensorflow and tensorflow_text.
"""

from __future__ import annotations

from absl import flags, logging

from albert_tf.cli import script
from albert_tf.cli.flags import define_overwrite_flag, define_path, refuse_flags
from albert_tf.errors import AlbertError
from albert_tf.tasks.registry import BUILT_IN, find_task
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH
from albert_tf.training.specs import BFLOAT16, FLOAT32

FLAGS = flags.FLAGS
EXPORT_TYPES = ["model", "model_with_mlm", "preprocessing"]
#: Names of tasks by the export types of fine-tuned models.
TASKS = {task.export_type: task.name for task in BUILT_IN}


def define_flags() -> None:
    """Defines the flags of this script."""
    define_path(
        "albert_directory", None, "The model to export: the output directory of a run, or anything "
        "that --init_checkpoint takes, with configuration and vocabulary next to the weights.",
        required=True
    )  # fmt: skip
    define_path(
        "export_path", None, "A new folder for the export; for TensorFlow Serving a number, as in "
        "models/rte/1.", required=True
    )  # fmt: skip
    flags.DEFINE_enum(
        "export_type", "model", [*EXPORT_TYPES, *TASKS], "model: the encoder; model_with_mlm: with "
        "the pretraining heads, as .mlm and .sop; preprocessing: the tokenizer and packing of "
        "inputs; others: a model fine-tuned by run_classifier.py, run_squad.py or run_race.py.",
    )  # fmt: skip
    flags.DEFINE_string(
        "checkpoint_name", None, "The checkpoint in --albert_directory, without .index. Default: "
        "the best one of a run, or the newest if there is no best; the only one of a release.",
    )  # fmt: skip
    flags.DEFINE_bool(
        "do_lower_case", None, "Whether the vocabulary is lower-cased. Default: as in "
        "tokenizer.json, or true.",
    )  # fmt: skip
    flags.DEFINE_enum(
        "format", "saved_model", ["saved_model", "tflite", "onnx"], "tflite: TensorFlow Lite; "
        "onnx: ONNX, which needs the extra `onnx`. Both are for --export_type=model and classifier "
        "and take token ids instead of text.",
    )  # fmt: skip
    flags.DEFINE_enum(
        "quantization", "none", ["none", "float16", "int8"], "With --format=tflite: type of the "
        "weights. float16 halves the size and int8 quarters it; the differences are reported.",
    )  # fmt: skip
    flags.DEFINE_enum(
        "precision", FLOAT32, [FLOAT32, BFLOAT16], "saved_model: mixed_bfloat16 "
        "computes in bfloat16, for processors with units for it; inputs and outputs stay float32. "
        "The report has the differences from float32.",
    )  # fmt: skip
    flags.DEFINE_integer(
        "max_seq_length", 128, "For --export_type=preprocessing: default length, in tokens.",
        lower_bound=MIN_SEQ_LENGTH,
    )  # fmt: skip
    define_overwrite_flag()


def _check_flags() -> None:
    if FLAGS.quantization != "none" and FLAGS.format != "tflite":
        raise AlbertError("--quantization is only for --format=tflite.")
    if FLAGS.precision != FLOAT32 and (
        FLAGS.format != "saved_model" or FLAGS.export_type == "preprocessing"
    ):
        raise AlbertError("--precision is for SavedModels of models; tflite has --quantization.")
    if FLAGS.export_type != "preprocessing":
        refuse_flags(["max_seq_length"], "it requires --export_type=preprocessing.")
    if FLAGS.export_type in TASKS:
        refuse_flags(["do_lower_case"], "a fine-tuned model keeps its tokenizer.")
    if FLAGS.format != "saved_model" and FLAGS.export_type in ("model_with_mlm", "preprocessing"):
        raise AlbertError(
            f"--format={FLAGS.format} is for --export_type=model and classifier, whose models can "
            "take token ids."
        )


def _main() -> None:
    _check_flags()
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.export.hub import export_encoder, export_preprocessor
    from albert_tf.export.model_folder import ModelFolder
    from albert_tf.tasks.export import export_ids, export_task

    # TensorFlow logs every name that it changes while saving.
    logging.set_verbosity(logging.WARNING)
    source = ModelFolder(FLAGS.albert_directory, FLAGS.checkpoint_name, FLAGS.do_lower_case)
    kind, overwrite = FLAGS.export_type, FLAGS.overwrite
    path = FLAGS.export_path
    task = find_task(TASKS.get(kind))
    if FLAGS.format != "saved_model":
        from albert_tf.export.id_formats import lite_format, onnx_format

        lite = FLAGS.format == "tflite"
        id_format = lite_format(FLAGS.quantization) if lite else onnx_format()
        export_ids(source, task, path, id_format, overwrite)
    elif task:
        export_task(task, source, path, overwrite, FLAGS.precision)
    elif kind == "preprocessing":
        export_preprocessor(source, path, FLAGS.max_seq_length, overwrite)
    else:
        export_encoder(source, path, kind == "model_with_mlm", overwrite, FLAGS.precision)


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
