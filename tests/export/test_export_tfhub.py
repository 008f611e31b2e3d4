# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""export_tfhub.py: exports folders with models as SavedModels with the same outputs."""

import collections
import os
import random
import shutil
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.keras2 import keras
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.scripts import export_tfhub
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.tasks.squad.answerer import QuestionAnswerer
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from albert_tf.tasks.tables import TextExample
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import RunConfig
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.load import load_weights
from tests.support.builders import tiny_config
from tests.support.releases import TF1_TINY, write_release
from tests.support.self_checks import checked_in_this_process
from tests.support.small_tasks import write_run
from tests.support.weights import golden_outputs, weights_of


def config_for(tokenizer):
    sizes = {"embedding_size": 16, "hidden_size": 32, "intermediate_size": 64}
    return tiny_config(tokenizer.vocab_size, **sizes, initializer_range=0.2)


def predictions(task, folder, source):
    config = RunConfig(output_dir=str(folder), precision="float32", eval_batch_size=16)
    return Estimator(task, config).predict(source.eval_input_fn)


def predictions_of(task, run, pairs, folder):
    """Predicts pairs of texts with the classifier of a run."""
    examples = [TextExample(str(i), a, b, None, "") for i, (a, b) in enumerate(pairs)]
    source = task.open_examples(examples, "x", labelled=False).source
    return predictions(task, run, source)


def load_model(task, run):
    model = task.build_model()
    load_weights(str(run), model.named_weights(), whole=True)
    return model


@pytest.fixture(params=["here", pytest.param("fresh process", marks=pytest.mark.slow)])
def self_check(request):
    """Checks a test's export in this process, or in a fresh one."""
    if request.param == "here":
        request.getfixturevalue("self_check_here")


def classification_task(tokenizer, labels=("no", "yes", "maybe")):
    return TextClassificationTask(config_for(tokenizer), tokenizer, ClassificationSpec(labels, 14))


class Classifier(NamedTuple):
    """A task, its output directory, and the SavedModel exported from there."""

    task: TextClassificationTask
    run: str
    path: str


@pytest.fixture(
    scope="module", params=["sentencepiece", pytest.param("wordpiece", marks=pytest.mark.slow)]
)
def classifier(request, tmp_path_factory) -> Classifier:
    keras.utils.set_random_seed(7)
    folder = tmp_path_factory.mktemp("classifier")
    task = classification_task(request.getfixturevalue(f"{request.param}_tokenizer"))
    write_run(task, folder / "run")
    with checked_in_this_process():  # A test below loads it in a fresh one.
        albert_tf.export_model(str(folder / "run"), str(folder / "saved"))
    return Classifier(task, str(folder / "run"), str(folder / "saved"))


def test_a_classifier_predicts_as_run_classifier_does(classifier, odd_texts, tmp_path):
    task = classifier.task
    rng = random.Random(0)
    firsts = odd_texts[:100]
    seconds = [rng.choice(["", *odd_texts[:50]]) for _ in firsts]
    classify = tf.saved_model.load(classifier.path)
    for pairs in (False, True):
        texts = zip(firsts, seconds if pairs else [None] * len(firsts))
        expected = predictions_of(task, classifier.run, texts, tmp_path)["probabilities"]
        assert expected.std(axis=0).min() > 1e-3
        found = classify(firsts, seconds) if pairs else classify(firsts)
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
        labels = [task.spec.labels[i] for i in expected.argmax(axis=1)]
        assert [label.decode() for label in found["label"].numpy()] == labels
    serve, serve_pairs = (classify.signatures[name] for name in ("serving_default", "pairs"))
    found = serve_pairs(sentences=tf.constant(firsts), second_sentences=tf.constant(seconds))
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    assert set(serve(sentences=tf.constant(firsts))) == {"label", "probabilities"}
    assert [label.decode() for label in classify.labels().numpy()] == list(task.spec.labels)


def test_no_text_at_all_has_no_answer(classifier):
    found = tf.saved_model.load(classifier.path)(tf.constant([], tf.string))
    assert found["label"].shape == [0] and found["probabilities"].shape == [0, 3]


@pytest.mark.usefixtures("self_check_here")
def test_a_fine_tuned_model_is_exported_by_the_path_of_its_checkpoint(classifier, export, tmp_path):
    run = shutil.copytree(classifier.run, tmp_path / "run")
    (run / "eval_results.json").write_text('{"accuracy": 0.8125}')
    for name in ("best", "best/ckpt-1"):
        path = export(run / name, tmp_path / os.path.basename(name))
        # The scores are those of the best weights, whichever they are.
        assert ("0.8125" in (tmp_path / path / "README.md").read_text()) == (name == "best")
        texts = ["the people", "the river"]
        found, expected = (tf.saved_model.load(p)(texts) for p in (path, classifier.path))
        np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-6)


@pytest.mark.usefixtures("self_check_here")
def test_a_masked_lm_without_a_sentence_order_head_is_exported_as_an_encoder(
    wordpiece_tokenizer, tmp_path, capsys
):
    config = config_for(wordpiece_tokenizer)
    weights = weights_of(AlbertPretrainer(config))
    kept = {name: value for name, value in weights.items() if "seq_relationship" not in name}
    write_tf2(str(tmp_path / "model"), config, wordpiece_tokenizer, kept)
    albert_tf.export_model(str(tmp_path / "model"), str(tmp_path / "saved"))
    assert "has no sentence order head; its encoder is exported alone" in capsys.readouterr().out
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert not hasattr(loaded, "mlm") and not hasattr(loaded, "sop")
    bare = {name: value for name, value in kept.items() if "pooler" not in name}
    write_tf2(str(tmp_path / "bare"), config, wordpiece_tokenizer, bare)
    with pytest.raises(AlbertError, match="masked LMs lack these weights; fine-tune the model"):
        albert_tf.export_model(str(tmp_path / "bare"), str(tmp_path / "none"))


@pytest.mark.parametrize("labels", [(), (0, 9, 10), (0.5, 1.0), (False, True)])
def test_numbers_in_a_graph_keep_their_type(labels, sentencepiece_tokenizer, odd_texts, tmp_path):
    task = classification_task(sentencepiece_tokenizer, labels)
    write_run(task, tmp_path / "run")
    texts = odd_texts[:30]
    pairs = [(text, None) for text in texts]
    expected = predictions_of(task, tmp_path / "run", pairs, tmp_path)
    exported = task.export(load_model(task, tmp_path / "run"))
    found = exported.signatures["serving_default"](tf.constant(texts))
    if labels:
        expected["label"] = np.array(labels)[expected["probabilities"].argmax(axis=1)]
        assert found["label"].dtype.as_numpy_dtype == expected["label"].dtype
        np.testing.assert_array_equal(exported.root.labels.__call__(), labels)
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5)


@pytest.mark.usefixtures("self_check")
def test_multiple_choice_predicts_as_run_race_does(
    sentencepiece_tokenizer, odd_texts, export, tmp_path
):
    tokenizer = sentencepiece_tokenizer
    spec = MultipleChoiceSpec(max_seq_length=24, max_qa_length=12)
    task = MultipleChoiceTask(config_for(tokenizer), tokenizer, spec)
    write_run(task, tmp_path / "run")
    rng = random.Random(0)
    words = ["stone", "_", "the", "___", "people", "(x)", "_ bread _"]
    examples = []
    for i in range(60):
        question = " ".join(rng.choices(words, k=rng.randrange(6)))
        options = tuple(" ".join(rng.choices(words, k=rng.randrange(1, 5))) for _ in range(3))
        text = rng.choice(odd_texts) + " the people"
        examples.append(MultipleChoiceExample(str(i), text, question, options, 0, "", ""))
    source = task.open_examples(examples, "x").source
    expected = predictions(task, tmp_path / "run", source)["probabilities"]
    path = export(tmp_path / "run", tmp_path / "saved")
    choose = tf.saved_model.load(path)
    columns = [[e.context for e in examples], [e.question for e in examples]]
    found = choose(*columns, [e.options for e in examples])
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    best = expected.argmax(axis=1)
    np.testing.assert_array_equal(found["index"], best)
    answers = [example.options[i] for example, i in zip(examples, best)]
    assert [answer.decode() for answer in found["answer"].numpy()] == answers
    served = choose.signatures["serving_default"](
        texts=tf.constant(columns[0]),
        questions=tf.constant(columns[1]),
        options=tf.constant([e.options for e in examples]),
    )
    np.testing.assert_allclose(served["probabilities"], expected, atol=1e-5)


def squad_task(tokenizer, version):
    lengths = {"max_seq_length": 32, "doc_stride": 7, "max_query_length": 8}
    spec = SquadSpec(version, n_best_size=10, max_answer_length=6, **lengths)
    return SquadTask(config_for(tokenizer), tokenizer, spec)


def assert_answers_are_those_of(answerer, answer, tokenizer, odd_texts):
    # Without characters that SentencePiece drops inside of numbers.
    texts = [text for text in odd_texts[::2] if tokenizer.encode(text)]
    texts = [text.replace("\x01", "") for text in texts]
    rng = random.Random(0)
    contexts = [" ".join(rng.choices(texts, k=rng.randrange(1, 5))) for _ in range(40)]
    questions = rng.choices(texts, k=len(contexts))
    found = answer(questions, contexts)
    different = []
    for i, (question, context) in enumerate(zip(questions, contexts)):
        expected = answerer.answer(question, context)
        start, end = int(found["start"][i]), int(found["end"][i])
        assert found["answer"][i].numpy().decode() == context[start:end]
        if expected.null_odds is not None:
            assert bool(found["answerable"][i]) == expected.answerable
        if (start, end) != (expected.start, expected.end):
            different.append((context[start:end], start, end, expected, context))
    assert not different
    assert len({len(tokenizer.encode(context)) > 30 for context in contexts}) == 2
    found = answer(["the people", "the", ""], ["", "the river, stone", "x"])
    assert found["answer"][0] == b"" and (found["start"][0], found["end"][0]) == (0, 0)
    assert found["answer"][1] != b"" and found["answer"][2] == b"x"


@pytest.mark.usefixtures("self_check")
def test_squad_answers_as_the_question_answerer_does(
    sentencepiece_tokenizer, odd_texts, export, tmp_path
):
    write_run(squad_task(sentencepiece_tokenizer, "2.0"), tmp_path / "run")
    answerer = QuestionAnswerer.load(str(tmp_path / "run"))
    path = export(tmp_path / "run", tmp_path / "saved")
    answer = tf.saved_model.load(path)
    assert_answers_are_those_of(answerer, answer, sentencepiece_tokenizer, odd_texts)


@pytest.mark.parametrize(
    "tokenizer", [pytest.param("sentencepiece", marks=pytest.mark.slow), "wordpiece"], indirect=True
)
def test_squad_with_a_span_head_answers_in_a_graph_as_the_question_answerer_does(
    tokenizer, odd_texts, tmp_path
):
    task = squad_task(tokenizer, "1.1")
    write_run(task, tmp_path)
    model = load_model(task, tmp_path)
    signatures = task.export(model).signatures
    answerer, answer = QuestionAnswerer(task, model), signatures["serving_default"]
    assert_answers_are_those_of(answerer, answer, tokenizer, odd_texts)


def test_questions_without_a_possible_span_have_the_same_empty_answer(
    wordpiece_tokenizer, tmp_path
):
    keras.utils.set_random_seed(0)
    # With one start and one end, which are one piece, hardly any fit together.
    lengths = {"max_seq_length": 32, "doc_stride": 7, "max_query_length": 8}
    spec = SquadSpec("1.1", n_best_size=1, max_answer_length=1, **lengths)
    task = SquadTask(config_for(wordpiece_tokenizer), wordpiece_tokenizer, spec)
    write_run(task, tmp_path)
    model = load_model(task, tmp_path)
    export = task.export(model)
    probes, answer = export.probes, export.signatures["serving_default"]
    assert b"" in np.concatenate([probe.expected["answer"] for probe in probes])
    for probe in probes:
        found = answer(**{name: tf.constant(value) for name, value in probe.inputs.items()})
        np.testing.assert_array_equal(found["answer"], probe.expected["answer"])


@pytest.mark.slow
@pytest.mark.usefixtures("self_check_here")
@pytest.mark.parametrize("name", ["classification", "squad", "multiple_choice"])
def test_models_that_take_text_compute_in_bfloat16(name, sentencepiece_tokenizer, tmp_path):
    tokenizer = sentencepiece_tokenizer
    if name == "squad":
        task = squad_task(tokenizer, "2.0")
    elif name == "classification":
        task = classification_task(tokenizer)
    else:
        spec = MultipleChoiceSpec(max_seq_length=24, max_qa_length=12)
        task = MultipleChoiceTask(config_for(tokenizer), tokenizer, spec)
    write_run(task, tmp_path / "run")
    path = str(tmp_path / "saved")
    albert_tf.export_model(str(tmp_path / "run"), path, precision="mixed_bfloat16")
    report = files.read_object(f"{path}/self_check.json")
    assert 1e-6 < report["largest_difference"] < report["tolerance"]
    # Nobody trains them, so the weights of products are stored in the type that computes.
    variables = tf.train.load_checkpoint(f"{path}/variables/variables").get_variable_to_dtype_map()
    variables = {n: t for n, t in variables.items() if t in (tf.float32, tf.bfloat16)}
    counts = collections.Counter(variables.values())
    dense = sum(n.endswith("/kernel") for n in task.build_model().named_weights())
    assert counts[tf.bfloat16] == dense and dense > 5 and counts[tf.float32] > 10


@pytest.mark.parametrize("paths", [(None, "exports"), ("runs", None), (3, "exports")])
def test_a_value_that_is_not_a_path_is_refused(paths, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AlbertError, match="must be a string, not"):
        albert_tf.export_model(*paths)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"format": "tflite", "export_type": "preprocessing"}, "models can take token ids"),
        (
            {"precision": "int8"},
            "--format='saved_model' cannot be combined with --precision='int8'",
        ),
        ({"precision": "mixed_bfloat16", "format": "tflite"}, "with --precision='mixed_bfloat16'"),
        (
            {"precision": "mixed_bfloat16", "export_type": "preprocessing"},
            "A preprocessor has no --prec",
        ),
    ],
)
def test_flags_that_an_export_ignores_are_refused(release, run_script, tmp_path, flags, message):
    flags = [f"--{name}={value}" for name, value in flags.items()]
    done = run_script(
        export_tfhub, f"--albert_directory={release}", f"--export_path={tmp_path}/out", *flags
    )
    assert done.returncode == 1 and message in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def exported_release(tmp_path_factory):
    """A release, and the SavedModel with its heads exported from it."""
    folder = tmp_path_factory.mktemp("release")
    release = str(write_release(folder / "release", "vocab_zh.txt"))
    with checked_in_this_process():
        albert_tf.export_model(release, str(folder / "saved"))
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
