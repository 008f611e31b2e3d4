# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""export_tfhub.py on the folder of a release: encoder, preprocessor, versions, damaged files."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

import albert_tf
import export_tfhub
from tests.support.releases import TF1_TINY, write_release
from tests.support.self_checks import checked_in_this_process
from tests.support.weights import golden_outputs, weights_of


@pytest.fixture(scope="module")
def exported_release(tmp_path_factory):
    """A release, and the SavedModel with its heads exported from it."""
    folder = tmp_path_factory.mktemp("release")
    release = str(write_release(folder / "release", "vocab_zh.txt"))
    with checked_in_this_process():
        albert_tf.export_saved_model(release, str(folder / "saved"))
    return release, str(folder / "saved")


def test_an_exported_release_has_the_outputs_of_the_release(exported_release):
    _, path = exported_release
    inputs, expected = golden_outputs(TF1_TINY)
    outputs, loaded = hub.KerasLayer(path)(inputs), hub.load(path)
    positions = tf.constant(expected["masked_lm_positions"], tf.int32)
    logits = loaded.mlm({**inputs, "masked_lm_positions": positions})["mlm_logits"]
    found = {
        "pooled_output": outputs["pooled_output"],
        "sequence_output": outputs["sequence_output"],
        "all_layers": outputs["encoder_outputs"],
        "mlm_log_probs": tf.reshape(tf.nn.log_softmax(logits), expected["mlm_log_probs"].shape),
        "sop_log_probs": tf.nn.log_softmax(loaded.sop(inputs)["sop_logits"]),
    }
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def test_an_exported_encoder_is_loaded_again_weight_by_weight(exported_release):
    expected, found = map(albert_tf.load_pretrained, exported_release)
    assert found.config == expected.config
    assert found.tokenizer.encode("p7 p9") == expected.tokenizer.encode("p7 p9")
    np.testing.assert_equal(weights_of(found), weights_of(expected))


@pytest.mark.slow
@pytest.mark.usefixtures("self_check_here")
def test_text_goes_through_preprocessor_and_encoder(release, export, tmp_path):
    shared = {"checkpoint_name": "model.ckpt-best", "do_lower_case": True}
    encoder = hub.load(export(release, tmp_path / "encoder", **shared))
    preprocessor = hub.load(
        export(release, tmp_path / "texts", export_type="preprocessing", seq_length=9)
    )
    inputs = preprocessor(["P7 p9", "p3"])
    np.testing.assert_array_equal(inputs["input_word_ids"][0], [2, 12, 14, 3, 0, 0, 0, 0, 0])
    assert encoder(inputs)["default"].shape == [2, 32]
    assert not hasattr(encoder, "mlm")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "vocab_zh.txt").unlink(), "There is no vocabulary"),
        (lambda folder: (folder / "x.model").write_text("x"), "x.model is not a Senten"),
        (lambda folder: (folder / "vocab_zh.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]"),
         "has 5 pieces, but the model vocab_size=120"),
        (lambda folder: (folder / "albert_config.json").unlink(), "albert_config"),
        (lambda folder: (folder / "model.ckpt-best.index").unlink(), "no checkpoint"),
        (lambda folder: (folder / "model.ckpt-best.data-00000-of-00001").write_bytes(b"x"),
         "is damaged: Read less bytes"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_and_nothing_is_written(
    release, run_script, tmp_path, damage, message
):
    damage(release)
    done = run_script(
        export_tfhub, f"--albert_directory={release}", f"--export_path={tmp_path}/saved"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"release"}


def test_a_version_is_a_numbered_folder_that_is_not_replaced(release, run_script, tmp_path):
    path = tmp_path / "models/zh"
    flags = [f"--albert_directory={release}", f"--export_path={path}", "--version=20"]
    with checked_in_this_process():
        run_script(export_tfhub, *flags, "--export_type=preprocessing").ok()
    assert [entry.name for entry in path.iterdir()] == ["20"]
    assert hub.load(str(path / "20"))(["p7"])["input_mask"].shape == [1, 128]
    done = run_script(export_tfhub, *flags)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: --export_path: {path} has a version 20 already; give another --version, or set "
        "--overwrite to replace it.\n"
    )


def test_an_export_that_fails_leaves_no_version(release, run_script, tmp_path):
    (release / "model.ckpt-best.data-00000-of-00001").write_bytes(b"x")
    path = tmp_path / "models/zh"
    flags = [f"--albert_directory={release}", f"--export_path={path}", "--version=3"]
    assert run_script(export_tfhub, *flags).returncode == 1
    assert not path.exists() or list(path.iterdir()) == []
