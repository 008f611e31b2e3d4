# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.huggingface.weights import read_safetensors
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.scripts import convert_checkpoint
from albert_tf.weights.checkpoint import write_tf1
from albert_tf.weights.conversion import FORMATS, convert
from tests.support.builders import tiny_config
from tests.support.releases import write_release
from tests.support.weights import weights_of, write_model


@pytest.fixture
def release(tmp_path):
    """The TF1 fixture with a vocabulary beside it."""
    return write_release(tmp_path / "release", "vocab.txt")


def chain(start, tmp_path, *formats):
    """Converts from each format to the next, and returns all folders, the start first."""
    folders = [start]
    for i, name in enumerate(formats):
        folder = tmp_path / f"{i}-{name}"
        convert(str(folders[-1]), name, str(folder))
        folders.append(folder)
    return folders


@pytest.mark.parametrize("between", ["tf2", "hf"])
def test_tf1_comes_back_bit_by_bit_under_the_official_names(between, release, tmp_path):
    folders = chain(release, tmp_path, between, "tf1")
    before, after = (tf.train.load_checkpoint(str(f)) for f in (release, folders[-1]))
    names = set(before.get_variable_to_shape_map())
    stored = {n for n in names if not n.endswith(("/adam_m", "/adam_v", "global_step"))}
    assert set(after.get_variable_to_shape_map()) == stored and len(stored) == 32
    for name in stored:
        assert before.get_tensor(name).tobytes() == after.get_tensor(name).tobytes()
    assert (folders[-1] / "vocab.txt").read_bytes() == (release / "vocab.txt").read_bytes()
    config = json.loads((folders[-1] / "albert_config.json").read_text())
    assert config.items() <= json.loads((release / "albert_config.json").read_text()).items()
    specs = [albert_tf.load_pretrained(str(folder)).tokenizer.spec for folder in folders]
    assert all(spec == specs[0] for spec in specs)


@pytest.mark.parametrize("between", ["tf2", "tf1"])
def test_hugging_face_comes_back_byte_by_byte(between, hf_tiny, tmp_path):
    last = chain(hf_tiny, tmp_path, between, "hf")[-1]
    ours, theirs = (read_safetensors(str(f / "model.safetensors")) for f in (last, hf_tiny))
    np.testing.assert_equal(ours, theirs)


def test_groups_and_inner_groups_survive_all_formats(grouped, tmp_path):
    write_model(tmp_path / "start", grouped)
    for folder in chain(tmp_path / "start", tmp_path, "hf", "tf1", "tf2"):
        found = albert_tf.load_pretrained(str(folder))
        assert found.config == grouped.config
        np.testing.assert_equal(weights_of(found), weights_of(grouped))


@pytest.mark.parametrize("to", FORMATS)
def test_our_output_is_the_same_for_the_same_input(to, release, tmp_path):
    for folder in ("one", "two"):
        convert(str(release), to, str(tmp_path / folder))
    one, two = (
        {str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()}
        for f in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two


def test_a_model_that_shares_nothing_becomes_groups(tmp_path):
    model = AlbertPretrainer(tiny_config(9, num_hidden_layers=3, parameter_sharing="none"))
    loaded = albert_tf.load_pretrained(write_model(tmp_path, model, write_tf1))
    assert loaded.config.num_hidden_groups == 3
    batch = {"input_word_ids": tf.constant([[1, 2, 3]])}
    np.testing.assert_array_equal(loaded(batch)["mlm_logits"], model(batch)["mlm_logits"])


@pytest.mark.parametrize(
    "values", [{"parameter_sharing": "ffn"}, {"parameter_sharing": "none", "num_hidden_layers": 22}]
)
def test_sharing_that_other_formats_do_not_support_is_refused(values):
    with pytest.raises(AlbertError, match="no counterpart"):
        tiny_config(9, **{"num_hidden_layers": 3, **values}).shared_by_groups()


def test_the_exact_gelu_is_not_written_for_tf1(hf_tiny, tmp_path):
    folder = shutil.copytree(hf_tiny, tmp_path / "hf")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "hidden_act": "gelu"}))
    convert(str(folder), "hf", str(tmp_path / "again"))
    assert json.loads((tmp_path / "again" / "config.json").read_text())["hidden_act"] == "gelu"
    with pytest.raises(AlbertError, match="tanh approximation only"):
        convert(str(folder), "tf1", str(tmp_path / "tf1"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "hf"]


class TestScript:
    @pytest.fixture
    def run(self, run_script, tmp_path):
        """Runs the script with tmp_path/out as its output."""

        def run(source, to, *flags):
            target = f"--output_dir={tmp_path}/out"
            return run_script(
                convert_checkpoint, f"--from_path={source}", f"--to={to}", target, *flags
            )

        return run

    def test_converts_and_reports(self, run, release, tf1_tiny, tmp_path):
        missing = f"There is no vocabulary beside {tf1_tiny}"
        assert missing in " ".join(run(tf1_tiny, "hf").ok().stdout.split())
        done = run(release, "hf", "--overwrite")
        assert done.returncode == 0, done.stderr
        assert "32 weights" in done.stdout and "no vocabulary" not in done.stdout
        assert {p.name for p in (tmp_path / "out").iterdir()} == {
            ".written_files.json", "config.json", "model.safetensors", "tokenizer.json",
            "tokenizer_config.json", "vocab.txt",
        }  # fmt: skip

    def test_bad_input_is_one_sentence_and_leaves_nothing(self, run, release, tmp_path):
        for source, text in (("/nowhere", "There is no checkpoint"), (tmp_path, "no checkpoint")):
            done = run(source, "tf2")
            assert done.returncode == 1 and done.stderr.startswith("error: ")
            assert text in done.stderr and not (tmp_path / "out").exists()
        done = run(release, "tf2", f"--output_dir={release}")
        assert done.returncode == 1 and "contains the input" in done.stderr

    def test_a_fine_tuned_model_is_converted_in_part_on_demand(self, run, grouped, tmp_path):
        classifier = AlbertClassifier(grouped.config, 3)
        source = write_model(tmp_path / "tuned", classifier)
        done = run(source, "tf1")
        assert done.returncode == 1 and "it lacks cls/predictions" in done.stderr
        done = run(source, "tf1", "--allow_partial")
        assert done.returncode == 0, done.stderr
        assert "Left out: output_bias, output_weights." in done.stdout
        stored = tf.train.load_checkpoint(str(tmp_path / "out")).get_variable_to_shape_map()
        assert set(stored) == {n for n in classifier.named_weights() if n.startswith("bert/")}
