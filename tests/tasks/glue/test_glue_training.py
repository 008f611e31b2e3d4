# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on real data that works, and is not warned of."""

from __future__ import annotations

import json

import pytest

from albert_tf import TextClassifier, TextRegressor
from albert_tf.tasks.glue.run import read_split
from albert_tf.tasks.glue.tasks import TASKS
from tests.support.real_data import real_data


def rows_of(name, count):
    examples = read_split(TASKS[name].splits["train"], str(real_data("glue")))
    return [
        {"text": example.text, "pair": example.text_pair, "label": example.label}
        for example in examples[:: len(examples) // count]
    ]


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "count", "steps", "settings"),
    [
        # Learned by heart: in the end, the loss is near 0, and much higher in single batches.
        ("cola", 200, 600, {"train_batch_size": 16, "learning_rate": 2e-4}),
        # Hardly learned.
        ("rte", 2400, 400, {"train_batch_size": 4, "learning_rate": 1e-4}),
        ("sts-b", 4000, 400, {"train_batch_size": 4, "learning_rate": 5e-5}),
        ("sst-2", 8000, 400, {"train_batch_size": 8, "learning_rate": 1e-4}),
    ],
)
def test_fine_tuning_that_works_is_not_warned_of(name, count, steps, settings, tmp_path, capsys):
    kind, pairs = (TextClassifier, TextRegressor)[name == "sts-b"], name in ("rte", "sts-b")
    kind.train(
        "albert_tiny_books",
        rows_of(name, count),
        text_pair="pair" if pairs else None,
        train_step=steps,
        warmup_step=steps // 10,
        max_seq_length=48,
        log_every_steps=1,
        output_dir=str(tmp_path),
        **settings,
    )
    printed = capsys.readouterr()
    assert "Warning: the mean loss" not in printed.err and "train" in printed.err
    logged = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(logged) == steps
    if name == "cola":
        assert sum(entry["accuracy"] for entry in logged[-100:]) > 97
