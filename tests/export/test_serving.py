# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The requests and the code of docs/serving.md, with small models in place of the page's."""

import io
import json
import re
import shlex
from pathlib import Path
from wsgiref import simple_server

import pytest
import tensorflow as tf

import albert_tf
from albert_tf.export.hub import encoder_export
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.export import task_export
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from tests.support.builders import tiny_config
from tests.support.small_tasks import write_run

PAGE = Path(__file__).resolve().parents[2] / "docs/serving.md"
AUTHORS = ("darwin", "dickens", "doyle", "smith", "spinoza", "washington")


def blocks(language):
    text = PAGE.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def predict_requests():
    """Returns the model's name and the body of each predict request of the page."""
    requests = []
    for block in blocks("sh"):
        for command in re.split(r"^curl ", block, flags=re.M)[1:]:
            url, option, body = shlex.split(command)
            assert option == "-d"
            if name := re.fullmatch(r"http://localhost:8501/v1/models/(\w+):predict", url):
                requests.append((name[1], json.loads(body)))
    return requests


def config_of(tokenizer):
    # The page has an id of a vocabulary of 30,000 pieces.
    return tiny_config(tokenizer.vocab_size, max_position_embeddings=64)


def classification(tokenizer, labels):
    return TextClassificationTask(config_of(tokenizer), tokenizer, ClassificationSpec(labels, 32))


def build(name, tokenizer):
    """Returns the signatures of a model of the page, with random weights."""
    config = config_of(tokenizer)
    if name == "encoder":
        encoder = AlbertEncoder(tiny_config(2000), dtype="float32")
        return encoder_export(encoder, tokenizer).signatures
    if name == "squad":
        spec = SquadSpec("2.0", max_seq_length=48, doc_stride=8, max_query_length=16)
        task = SquadTask(config, tokenizer, spec)
    elif name == "race":
        task = MultipleChoiceTask(config, tokenizer, MultipleChoiceSpec(48, 16))
    else:
        labels = {"authors": AUTHORS, "rte": ("entailment", "not_entailment"), "stars": ()}[name]
        task = classification(tokenizer, labels)
    return task_export(task, task.build_model()).signatures


def inputs_of(function):
    positional, named = function.structured_input_signature
    return {**{spec.name: spec for spec in positional if hasattr(spec, "dtype")}, **named}


def text_operations(functions):
    """Returns the operations of functions that TensorFlow itself does not have."""
    names = set()
    for function in functions:
        graph = function.graph.as_graph_def()
        names |= {node.op for node in graph.node}
        names |= {node.op for f in graph.library.function for node in f.node_def}
    return names - set(dir(tf.raw_ops))


@pytest.mark.parametrize("name", ["authors", "rte", "stars", "squad", "race", "encoder"])
def test_requests_fit_the_signatures(name, sentencepiece_tokenizer):
    signatures = build(name, sentencepiece_tokenizer)
    page = " ".join(PAGE.read_text("utf-8").split())
    for operation in text_operations(signatures.values()):
        assert f"`{operation}`" in page
    assert bool(text_operations(signatures.values())) == (name != "encoder")
    bodies = [body for model, body in predict_requests() if model == name]
    assert bodies
    for body in bodies:
        serve = signatures[body.get("signature_name", "serving_default")]
        specs = inputs_of(serve)
        given = body.get("inputs") or body["instances"]
        if isinstance(given, list) and isinstance(given[0], dict):
            given = {key: [row[key] for row in given] for key in given[0]}
        elif isinstance(given, list):
            given = dict.fromkeys(specs, given)
            assert len(given) == 1
        assert set(given) == set(specs)
        rows = len(next(iter(given.values())))
        outputs = serve(**{key: tf.constant(given[key], spec.dtype) for key, spec in specs.items()})
        assert {len(value) for value in outputs.values()} == {rows}


def code(words):
    """Returns the Python block of the page with these words."""
    (block,) = [block for block in blocks("python") if words in block]
    return block


@pytest.mark.usefixtures("self_check_here")
def test_the_process_without_a_server_answers(sentencepiece_tokenizer, tmp_path, monkeypatch):
    write_run(classification(sentencepiece_tokenizer, AUTHORS), tmp_path / "runs/authors")
    path = str(tmp_path / "models/authors/1")
    albert_tf.export_model(str(tmp_path / "runs/authors"), path)
    monkeypatch.chdir(tmp_path)
    started = []

    class Server:
        def __init__(self, *arguments):
            started.append(arguments)

        def serve_forever(self):
            pass

    monkeypatch.setattr(simple_server, "make_server", Server)
    exec(compile(code("serve_forever"), str(PAGE), "exec"), {})
    ((_, port, application),) = started
    (command,) = [block for block in blocks("sh") if f"localhost:{port}" in block]
    body = shlex.split(command)[-1]
    environment = {"wsgi.input": io.BytesIO(body.encode()), "CONTENT_LENGTH": str(len(body))}
    status = []
    answer = b"".join(application(environment, lambda *given: status.append(given)))
    assert status[0][0] == "200 OK"
    texts = json.loads(body)["instances"]
    labels = tf.saved_model.load(path)(texts)["label"].numpy()
    assert json.loads(answer) == {"predictions": [label.decode() for label in labels]}
