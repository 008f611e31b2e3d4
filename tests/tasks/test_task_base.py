# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import tarfile

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.huggingface.weights import write_hugging_face
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.base import load_model_files
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.weights.checkpoint import write_tf1
from albert_tf.weights.load import load_weights, open_source
from albert_tf.weights.run_folder import RunFolder
from tests.support.small_tasks import write_run
from tests.tasks.conftest import CONFIG


def test_model_files_are_found_by_any_name_of_a_checkpoint(task, tokenizer, tmp_path):
    task.save_files(str(tmp_path))
    for folder in ("checkpoints", "best"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ckpt-10.index").touch()
    for name in ("", "checkpoints", "checkpoints/ckpt-10", "best/ckpt-10"):
        config, loaded = load_model_files(str(tmp_path / name))
        assert config == task.config
        assert loaded.spec == tokenizer.spec


def test_a_preset_gets_the_size_of_the_vocabulary(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path))
    config, _ = load_model_files(None, "albert_test", str(tmp_path / "vocab.txt"))
    assert config.vocab_size == tokenizer.vocab_size


def test_a_missing_model_file_is_an_error_with_its_setting(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path))
    with pytest.raises(AlbertError, match="`albert_config_file` is needed: there is no albert_con"):
        load_model_files(str(tmp_path))
    with pytest.raises(AlbertError, match="`vocab_file` is needed: there is no `init_checkpoint`"):
        load_model_files(None, "albert_test")


@pytest.fixture
def pretrained(task, tokenizer, tmp_path):
    """The paths of a model as archive, TF1 folder and Hugging Face folder; its weights."""
    model = AlbertPretrainer(task.config)
    weights = {name: v.numpy() for name, v in model.named_weights().items()}
    paths = {"tf1": tmp_path / "tf1", "hf": tmp_path / "hf", "archive": tmp_path / "tf1.tar.gz"}
    for name, write in (("tf1", write_tf1), ("hf", write_hugging_face)):
        write(str(paths[name]), task.config, tokenizer, weights)
    (tmp_path / "tf1" / "tokenizer.json").unlink()  # As in a release.
    with tarfile.open(paths["archive"], "w:gz") as archive:
        archive.add(paths["tf1"], "albert_tiny")
    return paths, weights


@pytest.mark.parametrize("kind", ["archive", "tf1", "hf"])
def test_fine_tuning_starts_from_models_of_all_formats(pretrained, kind, tokenizer):
    paths, weights = pretrained
    config, loaded = load_model_files(str(paths[kind]))
    assert loaded.encode_batch(["a b c"]) == tokenizer.encode_batch(["a b c"])
    task = TextClassificationTask(config, loaded, ClassificationSpec(("x", "y"), 64))
    model = task.build_model()
    report = load_weights(str(paths[kind]), model.named_weights())
    assert report.missing == ("output_weights", "output_bias")
    for name, variable in model.encoder.named_weights().items():
        np.testing.assert_array_equal(variable.numpy(), weights[name])


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


@pytest.mark.parametrize(("key", "value"), [("num_attention_heads", 4), ("hidden_act", "relu")])
def test_a_configuration_that_contradicts_the_weights_is_refused(pretrained, key, value, tmp_path):
    config = dataclasses.replace(CONFIG, **{key: value})
    config.to_json(str(tmp_path / "other.json"))
    for path in pretrained[0].values():
        with pytest.raises(AlbertError, match=f"was trained with {key}="):
            load_model_files(str(path), str(tmp_path / "other.json"))


def test_an_unknown_change_is_named_as_such(task, tmp_path):
    task.save_files(str(tmp_path))
    assert type(task).load(str(tmp_path), max_seq_length=9).spec.max_seq_length == 9
    with pytest.raises(
        AlbertError, match=r"task\.json, with max_length changed, does not describe"
    ):
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
