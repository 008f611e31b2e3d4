# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Downloads models from Hugging Face with the library huggingface_hub.

Its cache, offline mode, endpoint and token follow that library's conventions (HF_HOME,
HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN or `hf auth login`).
"""

from __future__ import annotations

import functools
import importlib.util
import os

from albert_tf.errors import AlbertError, first_line
from albert_tf.huggingface import CONFIG, TOKENIZER_CONFIG, TORCH_WEIGHTS, VOCABULARIES, WEIGHTS


def check_installed(model: str) -> None:
    """Raises AlbertError unless huggingface_hub is installed; `model` is what needs it."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise AlbertError(
            f"There is no file or folder {model}. If it is a model on Hugging Face, install "
            "huggingface_hub (the extra `hub` of this package), which downloads it."
        )


@functools.cache
def snapshot(model: str, weights: bool = True) -> str:
    """Returns the folder in Hugging Face's cache with the files of a model that we read.

    Files that are not in the cache are downloaded: the configuration, the vocabulary with its
    settings, and the weights as safetensors. If there are none and PyTorch is installed, its own
    format is downloaded, which is read as weights alone.

    Args:
      model: OWNER/NAME; @REVISION (a branch, tag or commit) may follow.
      weights: whether the weights are needed.

    Raises:
      AlbertError: huggingface_hub is not installed, there is no such model or revision, it needs a
        token, it has no weights that can be read safely, or Hugging Face cannot be reached.
    """
    check_installed(model)
    folder = _download(model, [CONFIG, *VOCABULARIES, TOKENIZER_CONFIG, *[WEIGHTS] * weights])

    def lacks(name: str) -> bool:
        return not os.path.exists(os.path.join(folder, name))

    if lacks(CONFIG):
        raise AlbertError(f"{model} on Hugging Face is no model: it has no {CONFIG}.")
    if weights and lacks(WEIGHTS):
        if importlib.util.find_spec("torch") is None:
            raise AlbertError(
                f"{model} on Hugging Face has no {WEIGHTS}. Its {TORCH_WEIGHTS}, if it has one, is "
                "a pickle, which only PyTorch can read safely: install torch>=2.6."
            )
        # At the same commit, even if a new version is uploaded meanwhile.
        _download(f"{model.partition('@')[0]}@{os.path.basename(folder)}", [TORCH_WEIGHTS])
        if lacks(TORCH_WEIGHTS):
            raise AlbertError(f"{model} on Hugging Face has neither {WEIGHTS} nor {TORCH_WEIGHTS}.")
    return folder


def _download(model: str, names: list[str]) -> str:
    """Returns the folder in the cache with those of the named files that the model has."""
    from huggingface_hub import errors, snapshot_download

    repo_id, _, revision = model.partition("@")
    try:
        return snapshot_download(repo_id, revision=revision or None, allow_patterns=names)
    except errors.GatedRepoError as error:
        raise AlbertError(
            f"{model} needs the consent of its owner on Hugging Face: ask for it there, and log in "
            "(`hf auth login`, or HF_TOKEN)."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise AlbertError(
            f"There is no file or folder {model}, and Hugging Face has no model of this name that "
            "you may read; check the name, or log in (`hf auth login`, or HF_TOKEN) if it is "
            "private."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise AlbertError(f"{repo_id} on Hugging Face has no revision {revision!r}.") from error
    except Exception as error:  # The library's HTTP clients raise errors of many types.
        raise AlbertError(
            f"{model} is not in Hugging Face's cache as a whole, and cannot be downloaded "
            f"({_cause(error)}); check the network and HF_HUB_OFFLINE, or download the model "
            "elsewhere and give its folder."
        ) from error


def _cause(error: BaseException) -> str:
    """Returns the first line of the error behind an error: what the system reported."""
    while error.__cause__:
        error = error.__cause__
    return first_line(error)
