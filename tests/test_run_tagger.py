# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_tagger.py learns names and places, predicts, and does what Python does."""

from __future__ import annotations

import json
import random

from albert_tf.scripts import run_tagger
from albert_tf.tasks.tagging.tagger import TextTagger
from tests.support.builders import tiny_config, vocabulary, write_tokenizer

PEOPLE, PLACES = ("ada", "grace", "alan", "emmy"), ("london", "york", "paris", "oslo")
OTHERS = ("in", "lives", "saw", "and", "wrote", "from", "to", "the")
WORDS = (*PEOPLE, *PLACES, *OTHERS, "##s", "new")
SIZES = {"hidden_size": 32, "embedding_size": 16, "intermediate_size": 64}
CONFIG = tiny_config(len(vocabulary(WORDS)), max_position_embeddings=48, **SIZES)


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


def write_columns(folder, **counts):
    """Writes files <name>.txt with so many sentences; those of "predict" have no tags."""
    for name, count in counts.items():
        lines = list(sentences(count, name))
        lines = [line.split(" ")[0] for line in lines] if name == "predict" else lines
        (folder / f"{name}.txt").write_text("\n".join(lines))


def test_names_are_learned_evaluated_and_predicted(tmp_path, run_script):
    folder = tmp_path
    write_tokenizer(folder, WORDS)
    CONFIG.to_json(str(folder / "config.json"))
    write_columns(folder, train=200, eval=40, predict=10)
    with (folder / "train.txt").open("a") as file:
        file.write("\n\nsun\n")
    model = [f"--output_dir={folder}/run", "--eval_batch_size=16"]
    done = run_script(
        run_tagger, *model, "--do_train", "--do_eval", f"--train_file={folder}/train.txt",
        f"--eval_file={folder}/eval.txt", f"--albert_config_file={folder}/config.json",
        f"--vocab_file={folder}/vocab.txt", "--train_step=240", "--warmup_step=24",
        "--train_batch_size=16", "--learning_rate=0.003", "--precision=float32",
        "--max_seq_length=16",
    ).ok()  # fmt: skip
    assert "train: 1 of 201 rows have no label and are left out." in done.stdout
    results = json.loads((folder / "run/eval_results.json").read_text())
    assert min(results[x] for x in ("f1", "precision", "strict_f1", "PER_f1", "LOC_recall")) > 0.9
    run_script(run_tagger, *model, "--do_predict", f"--predict_file={folder}/predict.txt").ok()
    found = (folder / "run/predictions.txt").read_text().splitlines()
    expected = [line.replace(" ", "\t") for line in sentences(10, "predict")]
    assert [line.split("\t")[0] for line in found] == [line.split("\t")[0] for line in expected]
    assert sum(a == b for a, b in zip(found, expected)) > 0.9 * len(found)
    (text,) = TextTagger.load(folder / "run").predict(["Adas lives in New York"])
    assert [entity[:4] for entity in text.entities] == [
        ("Adas", "PER", 0, 4), ("New York", "LOC", 14, 22)
    ]  # fmt: skip
