# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The errors and warnings that pages show are those of the scripts, apart from numbers."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from typing import NamedTuple

import pytest

import convert_checkpoint
import run_classifier
import run_pretraining
import run_race
import run_squad
from albert_tf.keras2 import keras
from data_prep import create_pretraining_data
from tests.support import stand_ins
from tests.support.pages import ROOT, assert_shown, code_blocks, shown_errors

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TRAIN = "--do_train --output_dir=out"
BUILD = (
    "--input_file=text.txt --output_dir=records/train --spm_model_file=30k-clean.model "
    "--max_seq_length=512 --max_predictions_per_seq=20 --dupe_factor=1"
)
PRETRAIN = (
    "--do_train --input_file=records/train --albert_config_file=config.json --train_batch_size=8 "
    "--num_train_steps=1 --num_warmup_steps=0 --output_dir=runs/base"
)


class Case(NamedTuple):
    """A mistake: what it needs in the working folder, and the command."""

    write: Callable
    script: object
    flags: str


def without_training_file(folder):
    stand_ins.write_glue(folder / "glue", ["rte"])
    (folder / "glue/RTE/train.tsv").unlink()


def with_another_label(folder):
    stand_ins.write_glue(folder / "glue", ["rte"])
    path = folder / "glue/RTE/train.tsv"
    lines = path.read_text("utf-8").splitlines()
    lines[20] = "\t".join([*lines[20].split("\t")[:-1], "maybe"])
    path.write_text("\n".join(lines), "utf-8")


def capital_column(folder):
    (folder / "reviews.tsv").write_text("Text\tstars\nA\t1\nB\t2\n")


def label_in_two_ways(folder):
    labels = ["0", "1", "0", "0", "0", "0", "1.0"]
    lines = (json.dumps({"text": f"a {i}", "label": label}) for i, label in enumerate(labels))
    (folder / "reviews.jsonl").write_text("\n".join(lines))


def classifier_for_squad(folder):
    stand_ins.write_classifier(folder / "runs/rte", ("entailment", "not_entailment"))
    (folder / "new.json").write_text(json.dumps(stand_ins.squad_file("2.0")))


def answer_elsewhere(folder):
    content = stand_ins.squad_file("1.1")
    question = content["data"][0]["paragraphs"][1]["qas"][0]
    question["answers"] = [{"text": "A dog", "answer_start": 0}]
    (folder / "train.json").write_text(json.dumps(content))


def single_option(folder):
    row = {"context": "A", "question": "B", "options": ["c"], "label": 0}
    (folder / "train.jsonl").write_text(json.dumps(row))


def scores_for_pieces(folder):
    (folder / "vocab").mkdir()
    lines = ["<pad>\t0", "<unk>\t0", "[CLS]\t0", "[SEP]\t0", "[MASK]\t0", "▁the\t-3.2", "s\t-4"]
    (folder / "vocab/mine.vocab").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "train.tsv").write_text("text\tlabel\nA\tx\nB\ty\n")


def text(folder):
    lines = stand_ins.sentences()
    documents = ("\n".join(lines[i : i + 8]) for i in range(0, len(lines), 8))
    (folder / "text.txt").write_text("\n\n".join(documents), "utf-8")
    shutil.copy(stand_ins.VOCABULARY, folder / "30k-clean.model")
    stand_ins.config().to_json(str(folder / "config.json"))


#: By the beginnings of the errors on the pages.
CASES = {
    "The text file glue/RTE/train.tsv": Case(
        without_training_file, run_classifier, f"{TRAIN} --task_name=rte --data_dir=glue"
    ),
    "reviews.tsv has no column": Case(
        capital_column, run_classifier, f"{TRAIN} --train_file=reviews.tsv"
    ),
    "reviews.jsonl:7: the label": Case(
        label_in_two_ways, run_classifier, f"{TRAIN} --train_file=reviews.jsonl"
    ),
    "glue/RTE/train.tsv:21: RTE": Case(
        with_another_label, run_classifier, f"{TRAIN} --task_name=rte --data_dir=glue"
    ),
    "runs/rte/task.json describes": Case(
        classifier_for_squad,
        run_squad,
        "--do_predict --predict_file=new.json --output_dir=runs/rte",
    ),
    "train.json: question": Case(
        answer_elsewhere, run_squad, f"{TRAIN} --version=1.1 --train_file=train.json"
    ),
    "train.jsonl:1: 1 options": Case(
        single_option, run_race, f"{TRAIN} --train_file=train.jsonl --num_choices=4"
    ),
    "The checkpoint runs/demo/classifier": Case(
        lambda folder: stand_ins.write_classifier(folder / "runs/demo/classifier/random-2"),
        convert_checkpoint,
        "--from_path=runs/demo/classifier/random-2 --to=hf --output_dir=out",
    ),
    "vocab/mine.vocab is": Case(
        scores_for_pieces,
        run_classifier,
        f"{TRAIN} --train_file=train.tsv --albert_config_file=albert_tiny "
        "--vocab_file=vocab/mine.vocab",
    ),
}
#: Those whose commands follow others; the tests below.
OTHERS = ("runs/base holds another", "records/train/pretraining-", "runs/base is in use")


def errors():
    return [error for path in PAGES for error in shown_errors(path.read_text("utf-8"))]


def only(beginning):
    """Returns the error on a page that begins so."""
    (error,) = [error for error in errors() if error.startswith(beginning)]
    return error


def run(run_script, script, flags):
    done = run_script(script, *flags.split())
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1
    return done.stderr


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keras.utils.set_random_seed(1)
    return tmp_path


def test_every_error_on_a_page_is_made_here():
    begun = [only(beginning) for beginning in (*CASES, *OTHERS)]
    assert sorted(begun) == sorted(errors())


@pytest.mark.parametrize("beginning", CASES)
def test_an_error_is_that_of_the_page(beginning, working_folder, run_script):
    case = CASES[beginning]
    case.write(working_folder)
    assert_shown(f"error: {only(beginning)}", run(run_script, case.script, case.flags))


@pytest.mark.slow
def test_errors_of_pretraining_are_those_of_the_pages(working_folder, run_script, hold):
    text(working_folder)
    built = run_script(create_pretraining_data, *BUILD.split()).ok()
    page = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
    (warning,) = [
        block.text
        for block in code_blocks(page)
        if block.text.startswith("Warning: --max_predictions_per_seq")
    ]
    assert_shown(warning, built.stderr)

    again = f"{PRETRAIN} --do_eval --eval_input_file=records/train"
    assert_shown(f"error: {only(OTHERS[1])}", run(run_script, run_pretraining, again))
    with hold(working_folder / "runs/base"):
        shown = only(OTHERS[2]).replace(" on node3 ", f" on {socket.gethostname()} ")
        assert_shown(f"error: {shown}", run(run_script, run_pretraining, PRETRAIN))
    run_script(run_pretraining, *PRETRAIN.split()).ok()
    again = f"{PRETRAIN} --learning_rate=0.0001"
    assert_shown(f"error: {only(OTHERS[0])}", run(run_script, run_pretraining, again))
