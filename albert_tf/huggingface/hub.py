# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Downloads models from Hugging Face, and uploads them, with the library huggingface_hub.

Its cache, offline mode, endpoint and token follow that library's conventions (HF_HOME,
HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN or `hf auth login`).
"""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Any

from albert_tf.errors import AlbertError, first_line, root_cause
from albert_tf.huggingface import (
    ADDED_TOKENS,
    CONFIG,
    INDEX,
    MODULE_FILES,
    MODULES,
    PARTS,
    TOKENIZER_CONFIG,
    TORCH_WEIGHTS,
    VOCABULARIES,
    WEIGHTS,
)


@functools.cache
def snapshot(model: str, weights: bool = True) -> str:
    """Returns the folder in Hugging Face's cache with the files of a model that we read.

    Files that are not in the cache are downloaded: the configuration, the vocabulary with its
    settings, and the weights as safetensors. If there are none and PyTorch is installed, its own
    format is downloaded, which is read as weights alone. `model` is OWNER/NAME; @REVISION (a
    branch, tag or commit) may follow.

    Raises:
      AlbertError: huggingface_hub is not installed, there is no such model or revision, it needs a
        token, it has no weights that can be read safely, or Hugging Face cannot be reached.
    """
    names = [CONFIG, *VOCABULARIES, TOKENIZER_CONFIG, ADDED_TOKENS, MODULES, *MODULE_FILES]
    safe = [WEIGHTS, f"{WEIGHTS}{INDEX}", PARTS[0]]
    folder = _download(model, [*names, *safe] if weights else names)
    if not os.path.exists(os.path.join(folder, CONFIG)):
        raise AlbertError(f"{model} on Hugging Face is no model: it has no {CONFIG}.")
    if weights and not any(os.path.exists(os.path.join(folder, name)) for name in safe[:2]):
        if importlib.util.find_spec("torch") is None:
            raise AlbertError(
                f"{model} on Hugging Face has no {WEIGHTS}. Its {TORCH_WEIGHTS}, if it has one, is "
                "a pickle, which only PyTorch can read safely: install torch>=2.6."
            )
        # At the same commit, even if a new version is uploaded meanwhile.
        names = [TORCH_WEIGHTS, f"{TORCH_WEIGHTS}{INDEX}", PARTS[1]]
        _download(f"{model.partition('@')[0]}@{os.path.basename(folder)}", names)
    return folder


def _download(model: str, names: list[str]) -> str:
    """Returns the folder in the cache with the model's files of these names or patterns."""
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError as error:
        raise AlbertError(
            f"There is no file or folder {model}. If it is a model on Hugging Face, install "
            "huggingface_hub (the extra `hub` of this package), which downloads it."
        ) from error
    repo_id, _, revision = model.partition("@")
    try:
        return snapshot_download(repo_id, revision=revision or None, allow_patterns=names)
    except errors.RepositoryNotFoundError as error:  # It may be private, or need consent.
        raise AlbertError(
            f"There is no file or folder {model}, and Hugging Face has no model of this name that "
            "you may read; check the name, or, if it is private or needs the consent of its owner, "
            "log in (`hf auth login`, or HF_TOKEN)."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise AlbertError(f"{repo_id} on Hugging Face has no revision {revision!r}.") from error
    except Exception as error:  # The library's HTTP clients raise errors of many types.
        raise AlbertError(
            f"{model} is not in Hugging Face's cache as a whole, and cannot be downloaded "
            f"({first_line(root_cause(error))}); check the network and HF_HUB_OFFLINE, or download "
            "the model elsewhere and give its folder."
        ) from error


def upload(folder: str, repo_id: str, **options: Any) -> str:
    """Uploads the files of a folder, and returns the address of the commit.

    Args:
      folder: a local folder; hidden files are left out.
      repo_id: OWNER/NAME of a model, which is created if it is not there.
      **options: of huggingface_hub.create_repo, such as `private=True`.

    Raises:
      AlbertError: huggingface_hub is not installed, or Hugging Face refuses or cannot be reached.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        raise AlbertError(
            "To upload a model, install huggingface_hub (the extra `hub` of this package)."
        ) from error
    try:
        huggingface_hub.create_repo(repo_id, exist_ok=True, **options)
        files = {"folder_path": folder, "ignore_patterns": ".*"}
        return huggingface_hub.upload_folder(repo_id=repo_id, **files).commit_url
    except Exception as error:  # See `_download`.
        raise AlbertError(
            f"{repo_id} cannot be uploaded ({first_line(root_cause(error))}); check the name, the "
            "network, and that you are logged in (`hf auth login`, or HF_TOKEN)."
        ) from error
