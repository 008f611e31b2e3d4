# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Configurations, vocabularies, weights in all formats, archives."""

from __future__ import annotations

import functools
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.huggingface.config import read_config
from albert_tf.huggingface.tokenizer import tokenizer_json
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.pretrained import archives
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.load import assign_weights, open_source
from tests.fuzz.targets.target import CONFIG, PIECES, Target, vocabulary, written
from tests.fuzz.targets.texts import TEXT

GOLDEN = Path(__file__).parents[2] / "golden"


def _sentencepiece(folder: Path) -> Path:
    import sentencepiece as spm

    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh2013,"), rng.integers(1, 6))) for _ in range(300)]
    model = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter([" ".join(words[i : i + 9]) for i in range(0, 300, 9)]),
        model_writer=model,
        vocab_size=60,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        pad_piece="<pad>",
        minloglevel=2,
    )
    path = folder / "tiny.model"
    path.write_bytes(model.getvalue())
    return path


def _use_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_batch([TEXT, "", "ﬁ½ 2013,"])
    next(tokenizer.encode_with_offsets([TEXT]))
    tokenizer.decode(tokenizer.encode(TEXT))


def _tokenizer_json(folder: Path) -> Path:
    return Path(vocabulary(folder).save(str(folder)))


def _hugging_face_tokenizer(folder: Path) -> Path:
    model = _sentencepiece(folder)
    values = tokenizer_json(Tokenizer.from_file(str(model)))
    model.unlink()
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(values))
    return path


def _config(path: Path) -> None:
    AlbertConfig.load(str(path)).count_parameters()


def _release(name: str) -> Callable[[Path], Path]:
    """The TF1 release's checkpoint, with the path of one of its files."""

    def make(folder: Path) -> Path:
        shutil.copytree(GOLDEN / "tf1_tiny", folder, dirs_exist_ok=True)
        return folder / name

    return make


@functools.cache
def golden_weights() -> dict[str, tf.Variable]:
    """Returns the weights of a model with the golden models' sizes."""
    config = AlbertConfig.from_json(str(GOLDEN / "tf1_tiny/albert_config.json"))
    return AlbertPretrainer(config).named_weights()


def _load(path: Path) -> None:
    source = open_source(str(path.parent))
    source.config()
    source.tokenizer()
    str(assign_weights(source, golden_weights()))


def _own(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        config = AlbertConfig.from_json(str(GOLDEN / "tf1_tiny/albert_config.json"))
        values = {name: variable.numpy() for name, variable in golden_weights().items()}
        write_tf2(str(folder), config, None, values)
        return folder / name

    return make


def _hugging_face(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(GOLDEN / "hf_tiny" / file, folder / file)
        (folder / "vocab.txt").write_text("\n".join(PIECES))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"do_lower_case": True, "strip_accents": None, "keep_accents": False})
        )
        return folder / name

    return make


def _archive(folder: Path) -> Path:
    path = folder / "release.tar.gz"
    with tarfile.open(path, "w:gz") as f:
        f.add(GOLDEN / "tf1_tiny/albert_config.json", "tiny/albert_config.json")
        f.add(GOLDEN / "tf1_tiny/checkpoint", "tiny/checkpoint")
    return path


def _unpack(path: Path) -> None:
    archives._unpack.cache_clear()
    archives.unpack(str(path))


def _zip_archive(folder: Path) -> Path:
    path = folder / "release.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as f:
        for name in ("albert_config.json", "checkpoint"):
            f.write(GOLDEN / "tf1_tiny" / name, f"tiny/{name}")
    return path


TARGETS = {
    "model configuration": Target(written("albert_config.json", CONFIG), _config, True),
    "Hugging Face configuration": Target(
        _hugging_face("config.json"), lambda path: read_config(str(path)), True
    ),
    "Hugging Face tokenizer configuration": Target(
        _hugging_face("tokenizer_config.json"), _load, True
    ),
    "safetensors": Target(_hugging_face("model.safetensors"), _load),
    "WordPiece vocabulary": Target(written("vocab.txt", "\n".join(PIECES)), _use_tokenizer),
    "SentencePiece model": Target(_sentencepiece, _use_tokenizer),
    "tokenizer.json": Target(_tokenizer_json, _use_tokenizer, True),
    "tokenizer.json of Hugging Face": Target(_hugging_face_tokenizer, _use_tokenizer, True),
    "index of a TF1 checkpoint": Target(_release("model.ckpt-best.index"), _load),
    "data of a TF1 checkpoint": Target(_release("model.ckpt-best.data-00000-of-00001"), _load),
    "checkpoint file of a release": Target(_release("checkpoint"), _load),
    "index of a checkpoint": Target(_own("ckpt.index"), _load),
    "data of a checkpoint": Target(_own("ckpt.data-00000-of-00001"), _load),
    "archive.tar.gz": Target(_archive, _unpack),
    "archive.zip": Target(_zip_archive, _unpack),
}
