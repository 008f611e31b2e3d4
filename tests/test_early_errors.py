# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Mistakes that scripts report before they import TensorFlow or write anything.

One fresh Python process makes them all, as the tests' own process may have imported TensorFlow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = '''
import contextlib, importlib, io, json, os, sys
from absl import flags

class Refuse:
    """Ends an attempt that imports TensorFlow, so that the next one begins without it."""

    def find_spec(self, name, *_):
        if name == "tensorflow":
            raise SystemExit("TensorFlow was imported")

sys.meta_path.insert(0, Refuse())

def attempt(module, *arguments):
    known, errors = set(flags.FLAGS), io.StringIO()
    sys.argv = [module, *arguments]
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            importlib.import_module(module).main()
            status = 0
        except SystemExit as stop:
            status = stop.code
    flags.FLAGS.unparse_flags()
    for name in set(flags.FLAGS) - known:
        if not flags.FLAGS.find_module_defining_flag(name).startswith("absl."):
            delattr(flags.FLAGS, name)
    return [status, errors.getvalue(), os.path.exists("out")]

print(json.dumps([attempt(*mistake) for mistake in json.load(sys.stdin)]))
'''
CLASSIFY = ("run_classifier", "--output_dir=out")
TRAIN = (*CLASSIFY, "--do_train", "--train_file=data.tsv")
GLUE = (*CLASSIFY, "--do_train", "--data_dir=glue")
SQUAD = ("run_squad", "--output_dir=out")
RACE = ("run_race", "--output_dir=out", "--do_train")
PRETRAIN = ("run_pretraining", "--output_dir=out", "--input_file=records")
TINY = "--albert_config_file=albert_tiny"
BUILD = ("data_prep.create_pretraining_data", "--output_dir=out")
EXPORT = ("export_tfhub", "--albert_directory=albert_tiny_books")
CONVERT = ("convert_checkpoint", "--from_path=albert_tiny_books")
SCORE = ("albert_tf.tasks.squad.scoring", "--version=2.0", "absent.json", "file")
#: Command, and the sentence or a part of it.
MISTAKES = {
    "a missing table": (
        (*CLASSIFY, "--do_train", "--train_file=absent.tsv"),
        "--train_file: The text file absent.tsv does not exist.",
    ),
    "a missing table to evaluate on": (
        (*TRAIN, "--do_eval", "--eval_file=absent.tsv"),
        "--eval_file: The text file absent.tsv does not exist.",
    ),
    "a table that is a folder": (
        (*CLASSIFY, "--do_train", "--train_file=full.tsv"),
        "--train_file: full.tsv is a folder; give text files",
    ),
    "a table with another suffix": (
        (*CLASSIFY, "--do_train", "--train_file=file"),
        "--train_file: file has an unknown format; its name should end in .tsv, .csv or .jsonl.",
    ),
    "sequences longer than the bundled model's": (
        (*TRAIN, "--max_seq_length=513"),
        "max_seq_length=513 exceeds the model's max_position_embeddings=512.",
    ),
    "sequences longer than a configuration's": (
        (*TRAIN, "--max_seq_length=33", "--albert_config_file=short.json", "--vocab_file=file"),
        "max_seq_length=33 exceeds the model's max_position_embeddings=32.",
    ),
    "a batch that cannot be cut": (
        (*TRAIN, "--train_batch_size=6", "--gradient_accumulation_steps=4"),
        "train_batch_size=6 is not divisible by 4",
    ),
    "a recipe's batch that cannot be cut": (
        (*RACE, "--train_file=data.tsv", "--gradient_accumulation_steps=3"),
        " is not divisible by 3",
    ),
    "a missing checkpoint": (
        (*TRAIN, "--init_checkpoint=absent"),
        "--init_checkpoint: There is no checkpoint at absent; give an output directory",
    ),
    "a preset as weights": (
        (*TRAIN, "--init_checkpoint=albert_tiny"),
        "--init_checkpoint: albert_tiny is a preset of --albert_config_file, which is an",
    ),
    "a missing vocabulary": (
        (*TRAIN, "--spm_model_file=absent.model"),
        "--spm_model_file: The vocabulary absent.model does not exist.",
    ),
    "a configuration that is no preset": (
        (*TRAIN, "--albert_config_file=albert_bse_v2"),
        "--albert_config_file: 'albert_bse_v2' is neither a .json file nor a model preset",
    ),
    "an output directory below a file": (
        (*TRAIN, "--output_dir=file/run"),
        "--output_dir: file/run cannot be a folder, because ",
    ),
    "a model without a vocabulary": (
        (*TRAIN, "--albert_config_file=albert_test"),
        "--spm_model_file or --vocab_file is needed: there is no --init_checkpoint",
    ),
    "a vocabulary without a model": (
        (*TRAIN, "--init_checkpoint=none", "--spm_model_file=file"),
        "--albert_config_file is needed: there is no --init_checkpoint",
    ),
    "predicting without a model": (
        (*CLASSIFY, "--do_predict", "--predict_file=data.tsv"),
        "out holds no fine-tuned model (it has no task.json); give the output directory",
    ),
    "seeds without evaluation": ((*TRAIN, "--num_seeds=2"), "--num_seeds needs --do_eval"),
    "a strategy that is none": ((*TRAIN, "--strategy=parallel"), "value should be one of"),
    "GLUE without a folder": ((*CLASSIFY, "--do_train", "--task_name=rte"), "--data_dir is needed"),
    "a GLUE folder without the task": (
        (*GLUE, "--task_name=rte"),
        "The text file glue/RTE/train.tsv does not exist.",
    ),
    "a GLUE task that is not trained": (
        (*GLUE, "--task_name=ax"),
        "AX has neither training nor development examples",
    ),
    "a GLUE folder without any task": ((*GLUE, "--task_name=all"), "glue holds no GLUE task"),
    "missing questions": (
        (*SQUAD, "--do_train", "--version=1.1", "--train_file=absent.json"),
        "--train_file: The SQuAD file absent.json does not exist.",
    ),
    "a RACE folder that is none": (
        (*RACE, "--data_dir=full.tsv"),
        "full.tsv/train/middle is not there; --data_dir should be the folder of RACE",
    ),
    "missing records": (
        (*PRETRAIN, TINY),
        "--input_file: No record file matches 'records'; check the path.",
    ),
    "missing records among others": (
        (*PRETRAIN, "--input_file=file, absent/*", TINY),
        "--input_file: No record file matches 'absent/*'; check the path.",
    ),
    "missing held-out records": (
        (*PRETRAIN, "--input_file=file", TINY, "--eval_input_file=absent"),
        "--eval_input_file: No record file matches 'absent'; check the path.",
    ),
    "pretraining nothing known": ((*PRETRAIN, "--input_file=file"), "--albert_config_file is need"),
    "pretraining on too long sequences": (
        (*PRETRAIN, "--input_file=file", TINY, "--max_seq_length=1024"),
        "max_seq_length=1024 exceeds the model's max_position_embeddings=",
    ),
    "as many predictions as tokens": (
        (*PRETRAIN, "--input_file=file", TINY, "--max_seq_length=32",
         "--max_predictions_per_seq=32"),
        "--max_predictions_per_seq=32 must be less than --max_seq_length=32.",
    ),
    "an export over something": (
        (*EXPORT, "--export_path=full.tsv"),
        "--export_path: full.tsv already exists; delete it, give another path",
    ),
    "an export of nothing": (
        ("export_tfhub", "--albert_directory=absent", "--export_path=out"),
        "--albert_directory: There is no checkpoint at absent;",
    ),
    "an export of a task from a model without one": (
        (*EXPORT, "--export_path=out", "--export_type=squad"),
        "albert_tiny_books holds no fine-tuned model (it has no task.json)",
    ),
    "another case for a fine-tuned model": (
        (*EXPORT, "--export_path=out", "--export_type=squad", "--do_lower_case=false"),
        "--do_lower_case would be ignored: a fine-tuned model keeps its tokenizer.",
    ),
    "a SavedModel that is quantized": (
        (*EXPORT, "--export_path=out", "--quantization=int8"),
        "--quantization is only for --format=tflite.",
    ),
    "text for TensorFlow Lite": (
        (*EXPORT, "--export_path=out", "--format=tflite", "--export_type=squad"),
        "--export_type=squad cannot be exported to TensorFlow Lite",
    ),
    "text for ONNX": (
        (*EXPORT, "--export_path=out", "--format=onnx", "--export_type=preprocessing"),
        "--export_type=preprocessing cannot be exported to ONNX: ONNX has no built-in operations",
    ),
    "a conversion over something": (
        (*CONVERT, "--to=hf", "--output_dir=full.tsv"),
        "--output_dir: full.tsv already exists; delete it, give another path",
    ),
    "a conversion to another type": (
        (*CONVERT, "--to=tf1", "--output_dir=out", "--weights_dtype=float16"),
        "--weights_dtype=float16 is for --to=hf; tf1 has float32 only.",
    ),
    "missing text for records": (
        (*BUILD, "--input_file=absent.txt", "--vocab_file=file"),
        "--input_file: No input file matches 'absent.txt'; check the path.",
    ),
    "a missing vocabulary for records": (
        (*BUILD, "--input_file=file", "--vocab_file=absent.txt"),
        "--vocab_file: The vocabulary absent.txt does not exist.",
    ),
    "too many predictions for records": (
        (*BUILD, "--input_file=file", "--vocab_file=file", "--max_seq_length=8",
         "--max_predictions_per_seq=8"),
        "--max_predictions_per_seq is 8; it must be at least 1 and less than --max_seq_length, 8.",
    ),
    "missing text for a vocabulary": (
        ("data_prep.train_sentencepiece", "--input_file=absent/*", "--output_prefix=out/p"),
        "--input_file: No input file matches 'absent/*'; check the path.",
    ),
    "missing raw text": (
        ("data_prep.split_sentences", "--input_file=file,absent", "--output_file=out/x"),
        "--input_file: No input file matches 'absent'; check the path.",
    ),
    "split text over a folder": (
        ("data_prep.split_sentences", "--input_file=file", "--output_file=full.tsv"),
        "--output_file: full.tsv is a folder; give the path of a file for the output.",
    ),
    "missing records to verify": (
        ("data_prep.verify_records", "--input_file=absent"),
        "--input_file: No record file matches 'absent'; check the path.",
    ),
    "missing answers": (SCORE, "The SQuAD file absent.json does not exist."),
    "missing runs": (
        ("albert_tf.tasks.glue.submission", "--run_dirs=absent*"),
        "--run_dirs: No run directory matches 'absent*'; check the path.",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Exit status and errors for each mistake, and whether the output directory exists."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "file").write_text("text")
    (folder / "data.tsv").write_text("text\tlabel\n" + "good\tpos\nbad\tneg\n" * 8)
    (folder / "full.tsv").mkdir()
    (folder / "full.tsv/x").touch()
    (folder / "glue").mkdir()
    config = json.loads((ROOT / "albert_tf/configs/models/albert_tiny.json").read_text())
    (folder / "short.json").write_text(json.dumps({**config, "max_position_embeddings": 32}))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([command for command, _ in MISTAKES.values()]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(MISTAKES, json.loads(done.stdout)))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_before_tensorflow_is_imported(mistake, outcomes):
    status, errors, written = outcomes[mistake]
    assert status == 1
    assert MISTAKES[mistake][1] in errors
    assert "Traceback" not in errors
    assert not written
