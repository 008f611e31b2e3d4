# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Scripts refuse or mention flags that they would ignore."""

import importlib

import pytest

import run_classifier

TRAIN = ["--do_train", "--output_dir=runs/none"]
#: Script, command line and error.
REFUSED = [
    ("run_classifier", ["--task_name=rte", "--data_dir=glue", "--train_file=a.tsv",
                        "--eval_file=b.tsv"],
     "--train_file and --eval_file would be ignored: with --task_name=rte all data come from"),
    ("run_classifier", ["--task_name=all", "--data_dir=glue", "--predict_file=a.tsv"],
     "--predict_file would be ignored"),
    ("run_classifier", ["--task_name=sts-b", "--data_dir=glue", "--regression",
                        "--label_column=score"],
     "--label_column and --regression would be ignored"),
    ("run_classifier", ["--train_file=a.tsv", "--data_dir=glue"],
     "--data_dir would be ignored: they require --task_name="),
    ("run_classifier", ["--train_file=a.tsv", "--eval_every_steps=5"],
     "--eval_every_steps would be ignored: evaluation needs --do_eval"),
    ("run_classifier", ["--train_file=a.tsv", "--num_seeds=3"], "--num_seeds needs --do_eval"),
    ("run_classifier", ["--train_file=a.tsv", "--tpu_name=local"],
     "--tpu_name would be ignored: they require --strategy=tpu"),
    ("run_classifier", ["--train_file=a.tsv", "--use_tpu", "--strategy=mirrored"],
     "Give --use_tpu or --strategy=mirrored, not both"),
    ("run_squad", ["--version=1.1", "--train_file=a.json", "--early_stopping_evals=2"],
     "--early_stopping_evals would be ignored"),
    ("run_race", ["--train_file=a.jsonl", "--high_only"], "--high_only would be ignored"),
    ("run_race", ["--train_file=a.jsonl", "--data_dir=RACE"], "--data_dir would be ignored"),
    ("run_pretraining", ["--input_file=records", "--eval_every_steps=5"],
     "--eval_every_steps would be ignored"),
    ("export_tfhub", ["--albert_directory=a", "--export_path=b", "--seq_length=64"],
     "--seq_length would be ignored"),
    ("data_prep.split_sentences", ["--input_file=a", "--output_file=b", "--text_field=body"],
     "--text_field would be ignored"),
    ("data_prep.split_sentences", ["--input_file=a", "--output_file=b", "--input_format=files",
                                   "--document_blank_lines=1"],
     "--document_blank_lines would be ignored"),
    ("data_prep.create_pretraining_data", ["--input_file=a", "--random_next_sentence",
                                           "--sentence_objective=sop"],
     "--sentence_objective would be ignored"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "arguments", "message"), REFUSED)
def test_a_flag_of_another_mode_is_refused(script, arguments, message, run_script):
    train = TRAIN if script.startswith("run_") else []
    done = run_script(importlib.import_module(script), *train, *arguments)
    assert done.returncode == 1
    assert message in done.stderr


def test_flags_without_effect_are_mentioned(run_script, tmp_path):
    done = run_script(
        run_classifier,
        "--do_eval",
        f"--eval_file={tmp_path}/dev.tsv",
        f"--output_dir={tmp_path}/run",
        "--train_file=train.tsv",
        "--learning_rate=1e-4",
        "--num_seeds=3",
        "--init_checkpoint=runs/base",
    )
    assert (
        "Without --do_train, --init_checkpoint, --learning_rate and --num_seeds have no effect."
        in done.stdout
    )
    assert "Without --do_train, --train_file has no effect." in done.stdout


def test_flags_with_an_effect_are_not_mentioned(run_script):
    done = run_script(run_classifier, *TRAIN, "--train_file=none.tsv", "--learning_rate=1e-4")
    assert "no effect" not in done.stdout
