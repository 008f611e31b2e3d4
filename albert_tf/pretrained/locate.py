# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns the name of a pretrained model into a path, and downloads the model if need be.

All programs and functions that take weights or a vocabulary call `locate`, so a name means the
same everywhere. Nothing here imports TensorFlow for a local path.
"""

from __future__ import annotations

import hashlib
import os
import re

from albert_tf import pretrained
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError, first_line
from albert_tf.huggingface import hub
from albert_tf.io import files
from albert_tf.pretrained.archives import WEB, download, unpack

#: The file that makes a folder a SavedModel.
SAVED_MODEL = "saved_model.pb"
#: Begins the id of a model on Hugging Face; without it an id is recognised by its form.
HUGGING_FACE = "hf://"
#: Names the folder for downloaded archives.
CACHE_VARIABLE = "ALBERT_TF_CACHE"
#: Endings of archives that hold a model.
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
#: Where the README of google-research/albert links the archives of the release.
RELEASES_URL = "https://storage.googleapis.com/albert_models/"
#: The names of these archives, without their ending. There are presets of the same names.
RELEASES = tuple(
    f"albert_{size}_{version}"
    for version in ("v1", "v2", "zh")
    for size in ("base", "large", "xlarge", "xxlarge")
)
#: What all errors and help texts call the names.
NAMES = (
    "the name of a released model (albert_base_v2, …), a Hugging Face id (albert/albert-base-v2), "
    "a handle of TF-Hub or Kaggle (https://…)"
)
#: What flags for a vocabulary take.
VOCABULARY = (
    "SentencePiece model, WordPiece vocabulary, tokenizer.json, or the folder or name of a model "
    "that has one"
)
#: OWNER/NAME or OWNER/NAME@REVISION.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
#: Ends the names of files and of checkpoints, which are no ids.
_FILE = re.compile(
    r"\.(bin|gz|index|json|model|pb|safetensors|tar|tgz|txt|vocab|zip)$|ckpt(-\w+)?$"
)


def locate(name: str, what: str = "pretrained model", weights: bool = True) -> str:
    """Returns the path of a model, which is downloaded unless it is local or in a cache.

    An existing file or folder always takes precedence over a name. A path of another file system
    (gs://), or of nothing, is returned as it is, for the reader's error.

    Args:
      name: a path; an archive, which is unpacked into a temporary folder; the name of a bundled
        model or of an archive of the TF1 release; a Hugging Face id (OWNER/NAME, @REVISION may
        follow, hf:// may precede it); the URL of an archive (#sha256=… may follow); a handle of
        TF-Hub or Kaggle.
      what: what the name stands for, for errors.
      weights: whether the weights are needed, and not only the vocabulary.

    Raises:
      AlbertError: `name` is not a path, an archive is damaged or malicious, the model does not
        exist, or it cannot be downloaded.
    """
    path = files.path_of(name, what)
    kind = _kind(path)
    if path.startswith("kaggle://"):
        raise AlbertError(
            f"{path} is no address; give the model's, https://www.kaggle.com/models/…."
        )
    if kind == "bundled":
        return os.path.join(pretrained.FOLDER, path)
    if kind == "hub":
        return hub.snapshot(path.removeprefix(HUGGING_FACE), weights)
    if kind:
        path = _fetch(path if kind == "web" else f"{RELEASES_URL}{path}.tar.gz")
    return unpack(path) if path.endswith(ARCHIVES) and not files.isdir(path) else path


def is_name(path: str) -> bool:
    """Returns whether `locate` looks for a model elsewhere than at a path."""
    return bool(_kind(path))


def _kind(path: str) -> str:
    """Returns what a path names beside files: "hub", "web", "bundled", "release"; "": nothing."""
    if path.startswith(HUGGING_FACE):
        return "hub"
    if path.startswith(("https://", "http://")):
        return "web"
    if not files.is_local(path) or files.exists(path) or files.exists(f"{path}.index"):
        return ""
    if path in pretrained.bundled_names():
        return "bundled"
    if path in RELEASES:
        return "release"
    # A name in an existing folder is a mistyped path.
    is_id = _HUB_ID.fullmatch(path) and not _FILE.search(path)
    return "hub" if is_id and not os.path.exists(path.partition("/")[0]) else ""


def no_model(path: str) -> AlbertError:
    """Returns the error for a path where there is no model."""
    if path in AlbertConfig.preset_names() and path not in RELEASES:
        return AlbertError(
            f"{path} is a preset of `albert_config_file`, which is an architecture without "
            "weights; give a model's path or name."
        )
    return AlbertError(
        f"There is no checkpoint at {path}{'' if files.exists(path) else ', which does not exist'};"
        " give an output directory of a run, a folder or archive of a release, a Hugging Face "
        f"folder, a SavedModel, the name of a checkpoint without its .index ending, {NAMES}, or "
        f"that of a bundled model ({', '.join(pretrained.bundled_names())})."
    )


def _fetch(url: str) -> str:
    """Returns the path of the archive at a URL, or the folder of a module of TF-Hub or Kaggle."""
    if not url.startswith(WEB):
        raise AlbertError(f"What {url} sends can be changed on its way; give an https:// address.")
    address, _, sha256 = url.partition("#sha256=")
    name = os.path.basename(address.partition("?")[0])
    if name.endswith(ARCHIVES):
        cache = os.path.expanduser(os.environ.get(CACHE_VARIABLE) or "~/.cache/albert_tf")
        # Other archives may have the same name.
        number = hashlib.sha256(address.encode()).hexdigest()[:16]
        return download(address, os.path.join(cache, f"{number}-{name}"), sha256)
    try:
        import tensorflow_hub  # It fails if setuptools is too new.

        return tensorflow_hub.resolve(url)  # Downloads the module unless it is cached.
    except Exception as error:  # Network, HTTP and archives have no common type of error.
        raise AlbertError(
            f"Cannot get {url} from TF-Hub ({first_line(error)}); download it yourself, and "
            "give the path of the file."
        ) from error
