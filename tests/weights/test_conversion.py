# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

import albert_tf
import convert_checkpoint
from albert_tf.errors import AlbertError
from albert_tf.export.conversion import WRITERS, convert
from albert_tf.export.weight_formats import FORMATS
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf1, write_tf2
from albert_tf.weights.hugging_face_tokenizer import sentencepiece_pipeline
from albert_tf.weights.names import shared_by_groups
from albert_tf.weights.safetensors import SafetensorsFile
from tests.support.releases import write_release
from tests.support.self_checks import checked_in_this_process

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture
def release(tmp_path):
    """The TF1 fixture with a vocabulary beside it."""
    return write_release(tmp_path / "release", "vocab.txt")


@pytest.fixture(scope="module")
def saved_release(tmp_path_factory):
    """A SavedModel made of that; not to be changed."""
    folder = tmp_path_factory.mktemp("saved_release")
    with checked_in_this_process():
        release = write_release(folder / "release", "vocab.txt")
        convert(str(release), "tfhub", str(folder / "saved"))
    return folder / "saved"


def chain(start, tmp_path, *formats):
    """Converts from one format to the next; gives all folders, the start first."""
    folders = [start]
    for i, name in enumerate(formats):
        folder = tmp_path / f"{i}-{name}"
        convert(str(folders[-1]), name, str(folder))
        folders.append(folder)
    return folders


def weights_of(folder):
    model = albert_tf.load_pretrained(str(folder))
    return {name: v.numpy() for name, v in model.named_weights().items()}


def test_every_format_has_a_writer():
    assert tuple(WRITERS) == FORMATS


@pytest.mark.parametrize("to", ["tf2", "hf"])
def test_a_result_without_vocabulary_says_so(to, tf1_tiny, release, tmp_path, run_script):
    for source, silent in ((release, True), (tf1_tiny, False)):
        flags = (f"--from_path={source}", f"--to={to}", f"--output_dir={tmp_path / source.name}-2")
        done = run_script(convert_checkpoint, *flags)
        assert done.returncode == 0, done.stderr
        text = " ".join(done.stdout.split())
        assert (f"There is no vocabulary beside {source}" in text) != silent


@pytest.mark.parametrize("between", ["tf2", "hf"])
def test_tf1_comes_back_bit_by_bit_under_the_official_names(between, release, tmp_path):
    folders = chain(release, tmp_path, between, "tf1")
    before, after = (tf.train.load_checkpoint(str(f)) for f in (release, folders[-1]))
    names = set(before.get_variable_to_shape_map())
    weights = {n for n in names if not n.endswith(("/adam_m", "/adam_v", "global_step"))}
    assert set(after.get_variable_to_shape_map()) == weights and len(weights) == 32
    for name in weights:
        assert before.get_tensor(name).tobytes() == after.get_tensor(name).tobytes()
    assert (folders[-1] / "vocab.txt").read_bytes() == (release / "vocab.txt").read_bytes()
    config = json.loads((folders[-1] / "albert_config.json").read_text())
    given = json.loads((release / "albert_config.json").read_text())
    assert config.items() <= given.items()
    specs = [albert_tf.load_pretrained(str(folder)).tokenizer.spec for folder in folders]
    assert all(spec == specs[0] for spec in specs)


@pytest.mark.parametrize("between", ["tf2", "tf1"])
def test_hugging_face_comes_back_byte_by_byte(between, hf_tiny, tmp_path):
    last = chain(hf_tiny, tmp_path, between, "hf")[-1]
    name = "model.safetensors"
    ours, theirs = (SafetensorsFile(str(f / name)) for f in (last, hf_tiny))
    assert ours.shapes == theirs.shapes
    for tensor in theirs.shapes:
        assert ours.read(tensor).tobytes() == theirs.read(tensor).tobytes()


def test_groups_and_inner_groups_survive_all_formats(grouped, tmp_path):
    weights = {k: v.numpy() for k, v in grouped.named_weights().items()}
    write_tf2(str(tmp_path / "start"), grouped.config, None, weights)
    last = chain(tmp_path / "start", tmp_path, "hf", "tf1", "tf2")[-1]
    found = weights_of(last)
    assert list(found) == list(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize(
    "to", [pytest.param(to, marks=pytest.mark.slow) if to == "tfhub" else to for to in WRITERS]
)
def test_our_output_is_the_same_for_the_same_input(to, release, tmp_path):
    for folder in ("one", "two"):
        convert(str(release), to, str(tmp_path / folder))
    contents = [
        {str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()}
        for f in (tmp_path / "one", tmp_path / "two")
    ]
    assert contents[0].keys() == contents[1].keys()
    differ = {name for name in contents[0] if contents[0][name] != contents[1][name]}
    # TensorFlow numbers the functions of a process.
    assert differ <= {"saved_model.pb", "fingerprint.pb"}


def test_a_model_that_shares_nothing_becomes_groups(tmp_path):
    config = albert_tf.AlbertConfig(
        vocab_size=9, embedding_size=4, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=8, parameter_sharing="none"
    )  # fmt: skip
    model = AlbertPretrainer(config)
    weights = {k: v.numpy() for k, v in model.named_weights().items()}
    write_tf1(str(tmp_path), config, None, weights)
    loaded = albert_tf.load_pretrained(str(tmp_path))
    assert loaded.config.num_hidden_groups == 3
    batch = {"input_word_ids": tf.constant([[1, 2, 3]])}
    np.testing.assert_array_equal(loaded(batch)["mlm_logits"], model(batch)["mlm_logits"])


@pytest.mark.parametrize(
    "values", [{"parameter_sharing": "ffn"}, {"parameter_sharing": "none", "num_hidden_layers": 22}]
)
def test_sharing_that_others_do_not_know_is_refused(values):
    sizes = {"vocab_size": 9, "embedding_size": 4, "hidden_size": 8, "num_hidden_layers": 3}
    sizes.update(num_attention_heads=2, intermediate_size=8)
    with pytest.raises(AlbertError, match="no counterpart"):
        shared_by_groups(albert_tf.AlbertConfig(**{**sizes, **values}))


def test_the_exact_gelu_is_not_written_for_tf1(hf_tiny, tmp_path):
    folder = tmp_path / "hf"
    shutil.copytree(hf_tiny, folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "hidden_act": "gelu"}))
    convert(str(folder), "hf", str(tmp_path / "again"))
    assert json.loads((tmp_path / "again" / "config.json").read_text())["hidden_act"] == "gelu"
    with pytest.raises(AlbertError, match="tanh approximation only"):
        convert(str(folder), "tf1", str(tmp_path / "tf1"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "hf"]


@pytest.mark.realdata
def test_a_sentencepiece_model_keeps_its_rules_at_hugging_face(released_model, tmp_path):
    for lower, strip in ((True, True), (False, True), (False, False)):
        tokenizer = Tokenizer.from_file(released_model, lower, strip_accents=strip)
        config = albert_tf.AlbertConfig(30000, 2, 4, 1, 1, 4)
        model = AlbertPretrainer(config)
        weights = {k: v.numpy() for k, v in model.named_weights().items()}
        folder = tmp_path / f"{lower}-{strip}"
        WRITERS["hf"](str(folder), config, tokenizer, weights)
        found = albert_tf.load_pretrained(str(folder)).tokenizer
        assert found.encode("Café 9,000") == tokenizer.encode("Café 9,000")
        assert (found.spec.lower_case, found.spec.strip_accents) == (lower, strip)


def test_the_pipeline_for_hugging_face_segments_as_the_digit_comma_rule_does(released_model):
    tokenizer = Tokenizer.from_file(released_model)
    pipeline = sentencepiece_pipeline(tokenizer)
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.data)
    for piece, (text, score) in zip(model.pieces, pipeline["model"]["vocab"]):
        assert piece.piece == text
        piece.score = score
    plain = SentencePieceProcessor(model_proto=model.SerializeToString())
    cases = json.loads((GOLDEN / "tokenization_cases.json").read_text("utf-8"))
    texts = [case["text"] for case in cases] + ["1,234 20,5 x9, (12,) 1999,2000,"]
    for text in texts:
        assert plain.encode(normalize(text, True, True)) == tokenizer.encode(text)


def test_the_pipeline_for_hugging_face_finds_only_special_pieces_first(released_model):
    pipeline = sentencepiece_pipeline(Tokenizer.from_file(released_model, lower_case=False))
    found = {token["content"]: token["id"] for token in pipeline["added_tokens"]}
    assert found == {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    steps = [step["type"] for step in pipeline["normalizer"]["normalizers"]]
    assert steps == ["NFKD", "StripAccents", "Precompiled"]


def test_float16_holds_the_nearest_of_each_weight(run_script, release, tmp_path):
    """And reads back as float32, by our loader and in the sizes that Hugging Face's library has."""
    target = tmp_path / "half"
    done = run_script(
        convert_checkpoint, f"--from_path={release}", "--to=hf", "--weights_dtype=float16",
        f"--output_dir={target}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, after = weights_of(release), weights_of(target)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value.astype(np.float16).astype(np.float32))
        assert after[name].dtype == np.float32
    convert(str(release), "hf", str(tmp_path / "single"))
    sizes = [(f / "model.safetensors").stat().st_size for f in (target, tmp_path / "single")]
    assert sizes[0] < 0.6 * sizes[1]
    header = (target / "model.safetensors").read_bytes()[8:3000].decode("latin-1")
    assert '"dtype":"F16"' in header and '"dtype":"F32"' not in header


def test_rescaled_embeddings_have_the_size_of_new_ones_and_give_the_same_outputs(
    run_script, tmp_path
):
    keras.utils.set_random_seed(1)  # Some draws lie between two powers of two.
    config = albert_tf.AlbertConfig(50, 8, 16, 2, 2, 32)
    model = AlbertPretrainer(config)
    variables = model.named_weights()
    for name in variables:
        if name.startswith("bert/embeddings/") and name.endswith("_embeddings"):
            variables[name].assign(7 * variables[name])
    beta = variables["cls/predictions/transform/LayerNorm/beta"]
    beta.assign(np.linspace(-1, 1, beta.shape[0]))
    before = {name: v.numpy() for name, v in variables.items()}
    write_tf2(str(tmp_path / "large"), config, None, before)
    done = run_script(
        convert_checkpoint, f"--from_path={tmp_path / 'large'}", "--to=tf2",
        "--rescale_embeddings", f"--output_dir={tmp_path / 'new'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rescaled = albert_tf.load_pretrained(str(tmp_path / "new"))
    after = {name: v.numpy() for name, v in rescaled.named_weights().items()}
    words = "bert/embeddings/word_embeddings"
    assert 0.014 < after[words].std() < 0.029 < before[words].std()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {
        words,
        "bert/embeddings/position_embeddings",
        "bert/embeddings/token_type_embeddings",
        "cls/predictions/transform/LayerNorm/gamma",
        "cls/predictions/transform/LayerNorm/beta",
    }
    np.testing.assert_array_equal(after[words] * 8, before[words])
    ids = np.arange(30, dtype=np.int32).reshape(2, 15)
    inputs = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
        "masked_lm_positions": np.array([[1, 5], [2, 9]], np.int32),
    }
    ours, theirs = model(inputs), rescaled(inputs)
    for name in ours:
        np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_projection_that_hugging_face_wants_is_of_the_same_type(tmp_path):
    config = albert_tf.AlbertConfig(9, 8, 8, 1, 2, 8)
    weights = {k: v.numpy() for k, v in AlbertPretrainer(config).named_weights().items()}
    write_tf2(str(tmp_path / "run"), config, None, weights)
    convert(str(tmp_path / "run"), "hf", str(tmp_path / "hf"), weights_dtype="float16")
    assert '"F32"' not in (tmp_path / "hf/model.safetensors").read_bytes()[:3000].decode("latin-1")
    assert weights_of(tmp_path / "hf").keys() == weights.keys()


def test_what_float16_cannot_hold_is_an_error(tmp_path):
    config = albert_tf.AlbertConfig(9, 4, 8, 1, 2, 8)
    weights = {k: v.numpy() for k, v in AlbertPretrainer(config).named_weights().items()}
    weights["bert/pooler/dense/bias"][3] = -70000
    write_tf2(str(tmp_path / "run"), config, None, weights)
    with pytest.raises(AlbertError, match=r"bert/pooler/dense/bias holds -70000, which float16"):
        convert(str(tmp_path / "run"), "hf", str(tmp_path / "hf"), weights_dtype="float16")
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize("to", [name for name in WRITERS if name != "hf"])
def test_float16_is_for_hugging_face_alone(to, release, tmp_path):
    with pytest.raises(AlbertError, match=rf"--weights_dtype=float16 is for --to=hf; {to}"):
        convert(str(release), to, str(tmp_path / "out"), weights_dtype="float16")


class TestScript:
    def test_converts_and_reports(self, run_script, release, tmp_path):
        target = tmp_path / "hf"
        done = run_script(
            convert_checkpoint, f"--from_path={release}", "--to=hf", f"--output_dir={target}"
        )
        assert done.returncode == 0, done.stderr
        assert "32 weights" in done.stdout and "Not needed: 65" in done.stdout
        assert {p.name for p in target.iterdir()} == {
            "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"
        }  # fmt: skip

    def test_bad_input_is_one_sentence_and_leaves_nothing(self, run_script, release, tmp_path):
        target = tmp_path / "out"
        for source, text in (("/nowhere", "There is no checkpoint"), (tmp_path, "no checkpoint")):
            done = run_script(
                convert_checkpoint, f"--from_path={source}", "--to=tf2", f"--output_dir={target}"
            )
            assert done.returncode == 1 and done.stderr.startswith("error: ")
            assert text in done.stderr and not target.exists()
        done = run_script(
            convert_checkpoint, f"--from_path={release}", "--to=tf2", f"--output_dir={release}"
        )
        assert done.returncode == 1 and "already exists" in done.stderr

    def test_a_model_is_replaced_on_demand_and_the_source_never(
        self, run_script, release, tmp_path
    ):
        def convert_to(to, source, *flags):
            given = f"--from_path={source}", f"--to={to}", f"--output_dir={tmp_path}/out"
            return run_script(convert_checkpoint, *given, *flags)

        assert convert_to("hf", release).returncode == 0
        before = {path: path.stat().st_ino for path in (tmp_path / "out").iterdir()}
        done = convert_to("hf", release)
        assert done.returncode == 1 and "out already exists; delete it" in done.stderr
        done = convert_to("tf2", release, "--overwrite")
        assert done.returncode == 1 and "contains more than this would replace" in done.stderr
        done = convert_to("hf", tmp_path / "out", "--overwrite")
        assert done.returncode == 1 and "contains the input" in done.stderr
        assert {path: path.stat().st_ino for path in (tmp_path / "out").iterdir()} == before
        assert convert_to("hf", release, "--overwrite").returncode == 0
        assert {path.name for path in (tmp_path / "out").iterdir()} == {p.name for p in before}

    def test_a_fine_tuned_model_gives_what_it_has(self, run_script, grouped, tmp_path):
        classifier = AlbertClassifier(grouped.config, 3)
        weights = {k: v.numpy() for k, v in classifier.named_weights().items()}
        write_tf2(str(tmp_path / "tuned"), grouped.config, None, weights)
        arguments = (
            f"--from_path={tmp_path / 'tuned'}",
            "--to=tf1",
            f"--output_dir={tmp_path}/out",
        )
        done = run_script(convert_checkpoint, *arguments)
        assert done.returncode == 1 and "it lacks cls/predictions" in done.stderr
        done = run_script(convert_checkpoint, *arguments, "--allow_partial")
        assert done.returncode == 0, done.stderr
        assert "Left out: output_bias, output_weights." in done.stdout
        stored = tf.train.load_checkpoint(str(tmp_path / "out")).get_variable_to_shape_map()
        assert set(stored) == {name for name in weights if name.startswith("bert/")}


@pytest.mark.parametrize("name", ["tf1_tiny", pytest.param("hf_tiny", marks=pytest.mark.slow)])
def test_a_layer_of_tensorflow_hub_gives_the_outputs_of_the_origin(name, request, tmp_path):
    folder = request.getfixturevalue(name)
    saved = tmp_path / "saved"
    if name == "tf1_tiny":
        saved = request.getfixturevalue("saved_release")
    else:
        convert(str(folder), "tfhub", str(saved))
    given = np.load(folder / "expected.npz")
    names = {"input_ids": "word_ids", "input_mask": "mask", "segment_ids": "type_ids"}
    inputs = {f"input_{new}": tf.constant(given[old], tf.int32) for old, new in names.items()}
    loaded = hub.load(str(saved))
    outputs = hub.KerasLayer(loaded)(inputs)
    rows, length = given["input_ids"].shape
    everywhere = tf.broadcast_to(tf.range(length), [rows, length])
    with_positions = {**inputs, "masked_lm_positions": everywhere}
    mlm = hub.KerasLayer(loaded.mlm)(with_positions)["mlm_logits"].numpy()
    sop = hub.KerasLayer(loaded.sop)(inputs)["sop_logits"].numpy()
    if name == "tf1_tiny":
        mlm = np.take_along_axis(mlm, given["masked_lm_positions"][..., None], axis=1)
        mlm = tf.nn.log_softmax(mlm.reshape(given["mlm_log_probs"].shape))
        pairs = [(mlm, "mlm_log_probs"), (tf.nn.log_softmax(sop), "sop_log_probs")]
    else:
        pairs = [(mlm, "mlm_logits"), (sop, "sop_logits")]
    pairs += [(outputs[key], key) for key in ("sequence_output", "pooled_output")]
    for found, expected in pairs:
        np.testing.assert_allclose(found, given[expected], rtol=0, atol=1e-5, err_msg=expected)


def test_a_saved_model_comes_back_bit_by_bit(saved_release, release, tmp_path):
    last = tmp_path / "tf1"
    convert(str(saved_release), "tf1", str(last))
    before, after = (tf.train.load_checkpoint(str(folder)) for folder in (release, last))
    for name in after.get_variable_to_shape_map():
        assert before.get_tensor(name).tobytes() == after.get_tensor(name).tobytes()
    assert (last / "vocab.txt").read_bytes() == (release / "vocab.txt").read_bytes()


@pytest.mark.usefixtures("self_check_here")
def test_a_saved_model_without_heads_is_an_encoder(tmp_path):
    config = albert_tf.AlbertConfig(9, 4, 8, 1, 2, 8, max_position_embeddings=16)
    model = AlbertClassifier(config, 2)
    write_tf2(str(tmp_path / "tuned"), model.config, None, {
        name: weight.numpy() for name, weight in model.named_weights().items()
    })  # fmt: skip
    convert(str(tmp_path / "tuned"), "tfhub", str(tmp_path / "saved"), allow_partial=True)
    loaded = hub.load(str(tmp_path / "saved"))
    assert len(loaded.variables) == 25 and not hasattr(loaded, "mlm")
