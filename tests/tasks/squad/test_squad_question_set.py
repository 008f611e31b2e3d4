# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Sets of questions: which threshold is applied, and what a set of questions is refused for."""

from __future__ import annotations

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.data import read_squad
from albert_tf.tasks.squad.question_set import score_answers
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.squad.windows import WindowOptions

CONTEXT = "the river , the cafe , a fine river"


@pytest.fixture
def make_set(tokenizer, write_squad, tmp_path):
    """Makes a set of one answer a question; None: it is unanswerable."""
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size, embedding_size=8, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=32,
    )  # fmt: skip

    def make(version, golds, train_seed=None, **fields):
        qas = []
        for i, gold in enumerate(golds):
            answers = [{"text": gold, "answer_start": CONTEXT.find(gold)}] if gold else []
            qa = {"id": f"q{i}", "question": "a b", "answers": answers}
            qas.append({**qa, "is_impossible": gold is None, **fields})

        def change(content):
            content["data"][0]["paragraphs"][0]["context"] = CONTEXT

        windows = WindowOptions(max_seq_length=12, doc_stride=3, max_query_length=4)
        task = SquadTask(config, tokenizer, SquadSpec(version, windows=windows))
        questions = read_squad(write_squad(change, qas), version=version)
        cache = str(tmp_path / "cache")
        return task.open_examples(questions, "eval", cache, train_seed=train_seed)

    return make


def answers(texts, odds):
    names = [f"q{i}" for i in range(len(texts))]
    nbest = {name: [{"text": text}] for name, text in zip(names, texts)}
    return Answers(nbest, dict(zip(names, odds)))


def test_version_1_1_answers_every_question(make_set):
    asked = make_set("1.1", ["cafe", "fine river"])
    found = answers(["the cafe", "river"], [9.0, 9.0])
    results = score_answers(asked.examples, found, "1.1", None)
    assert results == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 2)}


def test_version_2_0_takes_the_best_threshold_unless_one_is_given(make_set):
    asked = make_set("2.0", ["cafe", "fine", None, None])
    found = answers(["cafe", "fine", "river", "a"], [-3.0, 1.0, 0.5, 4.0])
    results = score_answers(asked.examples, found, "2.0", None)
    # Answering only the first is as good as answering the first three; the first comes first.
    assert (results["f1"], results["best_f1"], results["null_threshold"]) == (75, 75, -1.25)
    assert results["all_null_f1"] == 50
    results = score_answers(asked.examples, found, "2.0", 1.0)
    assert (results["f1"], results["best_f1"], results["null_threshold"]) == (75, 75, 1)
    assert (results["HasAns_f1"], results["NoAns_f1"]) == (100, 50)
    assert score_answers(asked.examples, found, "2.0", -10.0)["f1"] == results["all_null_f1"]


def test_windows_are_evaluated_in_the_order_of_the_questions(make_set):
    asked = make_set("2.0", ["cafe", None, "river"])
    assert asked.source.num_examples == len(asked.windows()) > 3
    assert asked.eval_spec(2).max_steps == asked.source.num_batches(2)


def test_questions_without_known_answers_are_predicted_but_not_evaluated(make_set):
    with pytest.raises(AlbertError, match="question q1 has no answers to compare with; predict"):
        make_set("2.0", ["cafe", ""])


def test_training_leaves_windows_without_the_answer_out_of_1_1_alone(make_set, capsys):
    first = make_set("1.1", ["the river", "fine river"], train_seed=5)
    assert "more without the answer left out" in capsys.readouterr().out
    second = make_set("2.0", ["the river", "fine river"], train_seed=5)
    assert "left out" not in capsys.readouterr().out
    assert 2 <= first.source.num_examples < second.source.num_examples
