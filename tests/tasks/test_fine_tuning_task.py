# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.weights.load import open_source
from albert_tf.weights.run_folder import RunFolder
from tests.support.small_tasks import write_run
from tests.tasks.conftest import CONFIG


@pytest.mark.parametrize(
    ("labels", "others", "order"),
    [
        (("b", "a", "c"), {"labels": ("a", "b", "c")}, [1, 0, 2]),
        (("0", "1", "10"), {"labels": (0, 1, 10)}, [0, 1, 2]),
        (("x", "y"), {"labels": ("no", "yes")}, None),
        (("x", "y"), {"labels": ("x", "y", "z")}, None),
        ((), {"labels": ()}, [0]),
        ((), {"labels": (), "mean": 500.0}, [0]),
        (None, {"labels": ()}, None),  # Multiple choice, whose head has the shape of a regression.
        (("x", "y"), None, None),  # Nothing says what the outputs were.
    ],
)
def test_a_head_is_taken_over_by_the_names_of_its_outputs_or_not_at_all(
    labels, others, order, tokenizer, tmp_path, capsys
):
    old = MultipleChoiceTask(CONFIG, tokenizer, MultipleChoiceSpec(64, 8))
    if labels is not None:
        old = TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(labels, 64))
    write_run(old, tmp_path)
    if others is None:
        (tmp_path / "task.json").unlink()
    spec = ClassificationSpec(max_seq_length=64, **(others or {"labels": labels}))
    task = TextClassificationTask(CONFIG, tokenizer, spec)
    weights = task.build_model().named_weights()
    before = {name: weight.numpy() for name, weight in weights.items()}
    report = task.load_initial(str(tmp_path), weights)
    source = open_source(str(tmp_path))
    for name, weight in weights.items():
        of_encoder = name.startswith("bert/")
        expected = before[name] if order is None and not of_encoder else source.read(name)
        np.testing.assert_array_equal(weight, expected if of_encoder else expected[order or ...])
    assert report.unexpected == ()
    assert ("; the new one starts at random." in capsys.readouterr().out) == (order is None)


def test_an_unknown_change_is_named_as_such(task, tmp_path):
    task.save_files(str(tmp_path))
    assert type(task).load(str(tmp_path), max_seq_length=9).spec.max_seq_length == 9
    with pytest.raises(AlbertError, match=r"unknown settings: max_length \(did you mean max_seq_l"):
        type(task).load(str(tmp_path), max_length=9)


def test_folders_of_other_tasks_or_without_a_task_are_refused(task, tmp_path):
    with pytest.raises(AlbertError, match="holds no fine-tuned model"):
        RunFolder(str(tmp_path)).task("squad")
    task.save_files(str(tmp_path))
    with pytest.raises(AlbertError, match="for the task 'text_classification', not 'squad'"):
        RunFolder(str(tmp_path)).task("squad")
    (tmp_path / "task.json").write_text(json.dumps(["x"]))
    with pytest.raises(AlbertError, match="is not a JSON object"):
        RunFolder(str(tmp_path)).task("squad")
