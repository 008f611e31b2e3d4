# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The examples that the benchmark of fine-tuning gives to the other library."""

import numpy as np
import pytest

from albert_tf.data.context import InputContext
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.tables import TextExample
from benchmarks.finetune import write_rows
from tests.support import stand_ins

pytestmark = pytest.mark.tooling

TEXTS = ("Ada wrote it.", "a " * 30, "In 1843.")


@pytest.fixture
def task():
    spec = ClassificationSpec(("no", "yes"), 12)
    return TextClassificationTask(stand_ins.config(), stand_ins.tokenizer(), spec)


def examples(pair=None):
    return [TextExample(str(i), t, pair, ("yes", "no")[i % 2], "") for i, t in enumerate(TEXTS)]


@pytest.mark.parametrize("pair", [None, "a pair"])
def test_both_libraries_train_on_the_same_sequences_and_labels(pair, task, tmp_path):
    source = task.open_examples(examples(pair), "train", training=True).source
    write_rows(str(tmp_path / "peer.npz"), source, ("label_ids",))
    written = np.load(tmp_path / "peer.npz")
    bounds = np.cumsum(written["lengths"])[:-1]
    columns = [map(tuple, np.split(written[name], bounds)) for name in ("ids", "segments")]
    theirs = dict(zip(zip(*columns), written["targets"][:, 0]))
    ours = {}
    for batch in source.eval_input_fn(InputContext(3)):
        names = ("input_word_ids", "input_type_ids", "input_mask", "label_ids")
        for ids, types, mask, label in zip(*(batch[name].numpy() for name in names)):
            ours[tuple(ids[: mask.sum()]), tuple(types[: mask.sum()])] = label
    assert ours == theirs
    assert len(ours) == len(TEXTS)
    assert written["lengths"].max() == 12
