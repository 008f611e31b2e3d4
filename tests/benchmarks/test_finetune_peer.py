# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The examples that the benchmark of fine-tuning gives to the other library."""

import numpy as np
import pytest

from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from benchmarks.finetune.peer import write_ids
from tests.support import stand_ins

pytestmark = pytest.mark.tooling

TEXTS = ("Ada wrote it.", "a " * 30, "In 1843.")


@pytest.fixture
def task():
    spec = ClassificationSpec(("no", "yes"), 12)
    return TextClassificationTask(stand_ins.config(), stand_ins.tokenizer(), spec)


def examples(pair=None):
    return [TextExample(str(i), t, pair, ("yes", "no")[i % 2], "") for i, t in enumerate(TEXTS)]


def test_both_libraries_train_on_the_same_ids_and_labels(task, tmp_path):
    write_ids(str(tmp_path / "peer.npz"), task, examples())
    written = np.load(tmp_path / "peer.npz")
    texts = np.split(written["ids"], np.cumsum(written["lengths"])[:-1])
    labels = dict(zip(map(tuple, texts), written["labels"]))
    opened = task.open_examples(examples(), "train", str(tmp_path), train_seed=1)
    ours = {}
    for batch in opened.source.eval_input_fn(InputContext(3)):
        for ids, mask, label in zip(
            *(batch[name].numpy() for name in ("input_word_ids", "input_mask", "label_ids"))
        ):
            ours[tuple(ids[: mask.sum()])] = label
    assert ours == labels
    assert written["lengths"].max() == 12


def test_tasks_of_pairs_are_refused(task, tmp_path):
    with pytest.raises(AlbertError, match="tasks of one text"):
        write_ids(str(tmp_path / "peer.npz"), task, examples("a pair"))
