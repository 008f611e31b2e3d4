# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models on Hugging Face, through huggingface_hub and a server on loopback that answers like it.

Each test starts a Python process, because the library reads its environment when it is imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.errors import AlbertError
from albert_tf.pretrained import locate
from tests.support.cases import slow
from tests.support.web_server import COMMIT

ROOT = Path(__file__).parents[2]
MODEL = {
    "config.json": b'{"model_type": "albert"}',
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"a pickle",
    "tf_model.h5": b"others",
    "spiece.model": b"pieces",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "README.md": b"a card",
}
#: An address where nothing answers.
UNREACHABLE = "http://127.0.0.1:9"
#: Prints as JSON the folder or the error.
PROGRAM = """
import json, sys
from albert_tf.errors import AlbertError
from albert_tf.huggingface.hub import snapshot
try:
    print(json.dumps([None, snapshot(*json.loads(sys.argv[1]))]))
except AlbertError as error:
    print(json.dumps([str(error), None]))
"""


@pytest.fixture
def snapshot(server, tmp_path):
    """Calls `snapshot` in a new process; keywords are environment variables."""

    def called(*arguments, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING_FACE"))}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(arguments)],
            env={
                **kept,
                "PYTHONPATH": str(ROOT),
                "HF_ENDPOINT": server.url,
                "HF_HOME": str(tmp_path / "hf"),
                "HF_HUB_DISABLE_TELEMETRY": "1",
                **environment,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        error, folder = json.loads(done.stdout)
        if error:
            raise AlbertError(error)
        return Path(folder)

    return called


def test_without_the_library_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(AlbertError, match=r"no file or folder ab/cd\. If it .* install hugging"):
        locate.locate("ab/cd")


def test_only_needed_files_are_downloaded_and_only_once(server, snapshot):
    server.models["albert/base"] = MODEL
    folder = snapshot("albert/base")
    others = {"pytorch_model.bin", "tf_model.h5", "README.md"}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: data for name, data in MODEL.items() if name not in others
    }
    assert not others & {path.rpartition("/")[2] for path in server.paths()}
    server.requests.clear()
    assert snapshot("albert/base") == folder
    assert not any("/resolve/" in path for path in server.paths())


def test_all_parts_of_large_weights_are_downloaded(server, snapshot):
    parts = {f"model-0000{i}-of-00002.safetensors": b"part" for i in (1, 2)}
    server.models["albert/base"] = {**MODEL, "model.safetensors.index.json": b"{}", **parts}
    del server.models["albert/base"]["model.safetensors"]
    assert {*parts} < {*os.listdir(snapshot("albert/base"))}


def test_a_vocabulary_needs_no_weights(server, snapshot):
    server.models["voidful/zh"] = {**MODEL, "vocab.txt": b"[PAD]"}
    del server.models["voidful/zh"]["spiece.model"]
    assert "model.safetensors" not in os.listdir(snapshot("voidful/zh", False))


def test_offline_the_cache_is_used_alone(server, snapshot):
    server.models["albert/base"] = MODEL
    folder = snapshot("albert/base")
    server.requests.clear()
    assert snapshot("albert/base", HF_HUB_OFFLINE="1") == folder
    assert snapshot(f"albert/base@{COMMIT}", HF_HUB_OFFLINE="1") == folder
    assert server.requests == []


@pytest.mark.parametrize(
    "environment", [{"HF_HUB_OFFLINE": "1"}, *slow({"HF_ENDPOINT": UNREACHABLE})]
)
def test_offline_a_model_that_is_not_there_is_one_sentence(snapshot, environment):
    with pytest.raises(AlbertError) as caught:
        snapshot("albert/base", **environment)
    message = str(caught.value)
    assert message.startswith(
        "albert/base is not in Hugging Face's cache as a whole, and cannot be downloaded"
    )
    assert message.endswith("or download the model elsewhere and give its folder.")


def test_a_revision_is_a_branch_a_tag_or_a_commit(server, snapshot):
    server.models["albert/base"] = MODEL
    assert snapshot("albert/base@v2").name == COMMIT
    assert any("/revision/v2" in path for path in server.paths())
    with pytest.raises(AlbertError, match="albert/base on Hugging Face has no revision 'v3'"):
        snapshot("albert/base@v3")


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ("config.json", "ab/cd on Hugging Face is no model: it has no config.json"),
        (
            "model.safetensors",
            "ab/cd on Hugging Face has no model.safetensors. Its pytorch_model.b",
        ),
    ],
)
def test_a_model_without_a_file_is_one_sentence(server, snapshot, lacks, message):
    if lacks == "model.safetensors" and importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is installed, so its format can be read")
    server.models["ab/cd"] = {name: data for name, data in MODEL.items() if name != lacks}
    with pytest.raises(AlbertError, match=message):
        snapshot("ab/cd")
    assert not any("pytorch_model" in path for path in server.paths("GET"))


def test_with_pytorch_its_own_format_is_taken_if_there_is_no_other(server, snapshot, tmp_path):
    (tmp_path / "torch.py").write_text("")
    server.models["ab/cd"] = {n: data for n, data in MODEL.items() if n != "model.safetensors"}
    folder = snapshot("ab/cd", PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert (folder / "pytorch_model.bin").read_bytes() == b"a pickle"


def test_an_unknown_model_is_one_sentence_and_the_token_is_the_library_s(server, snapshot):
    with pytest.raises(
        AlbertError, match="no file or folder ab/cd, and Hugging Face has no model o"
    ):
        snapshot("ab/cd", HF_TOKEN="hf_secret")
    assert server.tokens == {"Bearer hf_secret"}
