# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The example of a task in one file learns, predicts and is exported."""

from __future__ import annotations

import json
import random

import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.tokenization.tokenizer import Tokenizer
from examples import run_token_classifier
from tests.support.builders import tiny_config, write_tokenizer

PEOPLE, PLACES = ("ada", "grace", "alan", "emmy"), ("london", "york", "paris", "oslo")
OTHERS = ("in", "lives", "saw", "and", "wrote", "from", "to", "the")
WORDS = (*PEOPLE, *PLACES, *OTHERS, "##s", "new")
SIZES = {"hidden_size": 32, "embedding_size": 16, "intermediate_size": 64}


def sentences(count, seed):
    """Names of one word and of two, and words in two pieces."""
    rng = random.Random(seed)
    for _ in range(count):
        for _ in range(rng.randint(3, 6)):
            yield f"{rng.choice(OTHERS)} O"
            if rng.random() < 0.5:
                yield f"{rng.choice(PEOPLE)}{rng.choice(['', 's'])} B-PER"
            elif rng.random() < 0.5:
                yield "new B-LOC"
                yield f"{rng.choice(PLACES)} I-LOC"
            else:
                yield f"{rng.choice(PLACES)} B-LOC"
        yield ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    tokenizer = write_tokenizer(folder, WORDS)
    config = tiny_config(tokenizer.vocab_size, max_position_embeddings=48, **SIZES)
    config.to_json(str(folder / "config.json"))
    for name, count in (("train", 200), ("dev", 40)):
        (folder / f"{name}.txt").write_text("\n".join(sentences(count, name)))
    words = [line.split(" ")[0] for line in sentences(10, "new")]
    (folder / "new.txt").write_text("\n".join(words))
    return folder


def test_several_machines_do_not_export(folder, run_script):
    done = run_script(
        run_token_classifier, "--do_train", f"--train_file={folder}/train.txt",
        f"--output_dir={folder}/cluster", "--strategy=multi_worker", f"--export_path={folder}/out",
    )  # fmt: skip
    assert (
        done.returncode == 1 and "--export_path is not for --strategy=multi_worker" in done.stderr
    )


def test_a_task_in_one_file_is_trained_evaluated_predicted_and_exported(folder, run_script):
    model = [f"--output_dir={folder}/run", "--eval_batch_size=16"]
    train = [
        "--do_train", "--do_eval", f"--train_file={folder}/train.txt",
        f"--eval_file={folder}/dev.txt", f"--albert_config_file={folder}/config.json",
        f"--vocab_file={folder}/vocab.txt", "--train_step=240", "--warmup_step=24",
        "--train_batch_size=16", "--learning_rate=0.003", "--precision=float32",
    ]  # fmt: skip
    done = run_script(run_token_classifier, *model, *train)
    assert done.returncode == 0, done.stderr
    results = json.loads((folder / "run/eval_results.json").read_text())
    assert results["f1"] > 0.95 and results["precision"] > 0.95

    files = [f"--predict_file={folder}/new.txt", f"--export_path={folder}/export"]
    done = run_script(run_token_classifier, *model, "--do_predict", *files)
    assert done.returncode == 0, done.stderr
    expected = list(sentences(10, "new"))
    found = (folder / "run/predictions.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in found] == [line.split(" ")[0] for line in expected[:-1]]
    right = sum(a == b for a, b in zip(found, expected))
    assert right > 0.95 * len(found)

    tag = tf.saved_model.load(str(folder / "export"))
    tags = tag(tf.constant(["the adas lives in new york", "to oslo"]))["tags"].numpy()
    assert tags.astype(str).tolist() == [
        ["O", "B-PER", "O", "O", "B-LOC", "I-LOC"],
        ["O", "B-LOC", "", "", "", ""],
    ]


def test_unknown_tags_are_refused(folder, run_script, tmp_path):
    (tmp_path / "odd.txt").write_text("ada B-ORG\n")
    tokenizer = Tokenizer.from_file(str(folder / "vocab.txt"))
    config = AlbertConfig.load(str(folder / "config.json"))
    spec = run_token_classifier.TaggingSpec(("B-PER", "O"), 48)
    task = run_token_classifier.TokenClassificationTask(config, tokenizer, spec)
    task.save_files(str(tmp_path / "run"))
    given = f"--output_dir={tmp_path}/run", "--do_eval", f"--eval_file={tmp_path}/odd.txt"
    done = run_script(run_token_classifier, *given)
    assert done.returncode == 1 and "unknown tags: B-ORG" in done.stderr
