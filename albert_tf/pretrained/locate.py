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
import urllib.parse

from albert_tf import pretrained
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError, first_line
from albert_tf.huggingface import hub
from albert_tf.io import files
from albert_tf.pretrained.archives import cache_folder, download, unpack

#: The file that makes a folder a SavedModel.
SAVED_MODEL = "saved_model.pb"
#: Begins the id of a model on Hugging Face; without it an id is recognised by its form.
HUGGING_FACE = "hf://"
#: Begins the addresses of archives and of TF-Hub.
_WEB, _UNSAFE_WEB = "https://", "http://"
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
        follow, hf:// may precede it); the URL of an archive; a handle of TF-Hub or Kaggle.
      what: what the name stands for, for errors.
      weights: whether the weights are needed, and not only the vocabulary.

    Raises:
      AlbertError: `name` is not a path, an archive is damaged or malicious, the model does not
        exist, or it cannot be downloaded.
    """
    path = files.path_of(name, what)
    if path.startswith(HUGGING_FACE):
        return hub.snapshot(path[len(HUGGING_FACE) :], weights)
    if path.startswith(_WEB):
        path = _fetch(path)
    elif path.startswith(_UNSAFE_WEB):
        raise AlbertError(f"What {path} sends can be changed on its way; give an https:// address.")
    elif files.is_local(path) and not _exists(path):
        if _is_bundled(path):
            return os.path.join(pretrained.FOLDER, path)
        if _is_hub_id(path):
            return hub.snapshot(path, weights)
        if path in RELEASES:
            archive = f"{path}.tar.gz"
            path = download(RELEASES_URL + archive, os.path.join(cache_folder(), archive))
    if path.endswith(ARCHIVES) and not files.isdir(path):
        return unpack(path)
    return path


def is_name(path: str) -> bool:
    """Returns whether `locate` looks for a model elsewhere than at a path."""
    if not files.is_local(path):
        return path.startswith((HUGGING_FACE, _WEB, _UNSAFE_WEB))
    return not _exists(path) and (_is_bundled(path) or path in RELEASES or _is_hub_id(path))


def check_model(path: str) -> None:
    """Checks what can be checked of a model's name without a download; NONE is accepted.

    Raises:
      AlbertError: `path` neither exists nor has the form of a name, or the package that downloads
        such a model is not installed.
    """
    if path != pretrained.NONE and not _is_known(path):
        raise no_model(path)


def _is_known(path: str) -> bool:
    """Returns whether a path exists or is a name; raises AlbertError as `check_model`."""
    if not is_name(path):
        return _exists(path)
    if _is_hub_id(path):
        hub.check_installed(path)
    return True


def no_model(path: str) -> AlbertError:
    """Returns the error for a path where there is no model."""
    if path in AlbertConfig.preset_names() and path not in RELEASES:
        return AlbertError(
            f"{path} is a preset of `albert_config_file`, which is an architecture without "
            "weights; give a model's path or name."
        )
    return AlbertError(
        f"There is no checkpoint at {path}; give an output directory of a run, a folder or "
        "archive of a release, a Hugging Face folder, a SavedModel, the name of a checkpoint "
        f"without its .index ending, {NAMES}, or that of a bundled model "
        f"({', '.join(pretrained.bundled_names())})."
    )


def _is_hub_id(path: str) -> bool:
    """Returns whether a path that does not exist is meant as the id of a Hugging Face model.

    A name in an existing folder is a mistyped path.
    """
    owner = path.partition("/")[0]
    return bool(_HUB_ID.fullmatch(path) and not _FILE.search(path) and not os.path.exists(owner))


def _is_bundled(path: str) -> bool:
    return path in pretrained.bundled_names() and not _exists(path)


def _exists(path: str) -> bool:
    return any(files.exists(name) for name in (path, f"{path}.index"))


def _fetch(url: str) -> str:
    """Returns the path of the archive at a URL, or the folder of a module of TF-Hub or Kaggle."""
    name = os.path.basename(urllib.parse.urlsplit(url).path)
    if not name.endswith(ARCHIVES):
        return _resolve_handle(url)
    if url == RELEASES_URL + name:
        return download(url, os.path.join(cache_folder(), name))
    # Other archives of the same name must not take its place.
    folder = hashlib.sha256(url.encode()).hexdigest()[:16]
    return download(url, os.path.join(cache_folder(), folder, name))


def _resolve_handle(handle: str) -> str:
    """Returns the folder of a module, which TF-Hub's library downloads unless it is cached."""
    try:
        import tensorflow_hub  # It fails if setuptools is too new.

        return tensorflow_hub.resolve(handle)
    except Exception as error:  # Network, HTTP and archives have no common type of error.
        raise AlbertError(
            f"Cannot get {handle} from TF-Hub ({first_line(error)}); download it yourself, and "
            "give the path of the file."
        ) from error
