# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_embedder.py learns which texts belong together, and does what Python does."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import albert_tf
from albert_tf.commands import embed
from albert_tf.errors import AlbertError
from albert_tf.scripts import run_embedder
from tests.support.builders import tiny_config, vocabulary, write_tokenizer

#: Words of a topic occur together.
TOPICS = [[f"{topic}{i}" for i in "abcdefgh"] for topic in ("sea", "ball", "star", "law", "tea")]
WORDS = [word for topic in TOPICS for word in topic]
SIZES = {"hidden_size": 32, "embedding_size": 16, "intermediate_size": 64}
CONFIG = tiny_config(len(vocabulary(WORDS)), max_position_embeddings=16, **SIZES)


def pairs(count, seed):
    rng = random.Random(seed)
    for i in range(count):
        topic = rng.sample(TOPICS[i % len(TOPICS)], 6)
        yield {"anchor": " ".join(topic[:3]), "positive": " ".join(topic[3:])}


def test_pairs_are_learned_found_and_written(tmp_path, run_script):
    folder = tmp_path
    write_tokenizer(folder, WORDS)
    CONFIG.to_json(str(folder / "config.json"))
    for name, count in (("train", 400), ("eval", 5)):
        rows = "".join(f"{json.dumps(row)}\n" for row in pairs(count, name))
        (folder / f"{name}.jsonl").write_text(rows)
    texts = [row["anchor"] for row in pairs(10, "new")]
    (folder / "new.txt").write_text("\n".join(texts))
    run_script(
        run_embedder, "--do_train", "--do_eval", f"--train_file={folder}/train.jsonl",
        f"--eval_file={folder}/eval.jsonl", f"--albert_config_file={folder}/config.json",
        f"--vocab_file={folder}/vocab.txt", "--train_step=150", "--warmup_step=15",
        "--train_batch_size=16", "--gradient_accumulation_steps=2", "--learning_rate=0.003",
        "--precision=float32", "--max_seq_length=16", f"--output_dir={folder}/run",
    ).ok()  # fmt: skip
    results = json.loads((folder / "run/eval_results.json").read_text())
    assert results["mrr"] == results["recall_at_1"] == 1
    flags = "--do_predict", f"--predict_file={folder}/new.txt", f"--output_dir={folder}/run"
    run_script(run_embedder, *flags).ok()
    vectors = np.load(folder / "run/vectors.npy")
    embedder = albert_tf.TextEmbedder.load(folder / "run")
    assert embedder.task.config.hidden_dropout_prob == 0.1  # Recipe; the given model has none.
    np.testing.assert_allclose(embedder.embed(texts), vectors, atol=1e-5)
    assert embedder.embed([]).shape == (0, 32)
    assert embedder.evaluate(folder / "eval.jsonl")["mrr"] == 1
    with pytest.raises(AlbertError, match="index"):
        embedder.search("seaa")
    embedder.index([" ".join(topic[:3]) for topic in TOPICS])
    best = embedder.search(["tead teae teaf", "stare starg"], top_k=2)
    assert [hits[0].index for hits in best] == [4, 2]
    assert best[0][0].text == "teaa teab teac" and best[0][0].score > best[0][1].score
    printed = run_script(embed, f"{folder}/run", texts[0]).ok().stdout
    np.testing.assert_allclose(json.loads(printed)["vector"], vectors[0], atol=1e-5)
