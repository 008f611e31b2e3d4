# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""load_pretrained: loads a pretrained ALBERT of any format, and checks every variable."""

from __future__ import annotations

import os
import warnings

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.errors import AlbertError, printable
from albert_tf.io import files
from albert_tf.pretrained.hugging_face_hub import TORCH_WEIGHTS, WEIGHTS
from albert_tf.pretrained.locate import locate
from albert_tf.weights.checkpoint import CheckpointSource
from albert_tf.weights.config_files import HUGGING_FACE_CONFIG, SAVED_MODEL
from albert_tf.weights.huggingface import HuggingFaceSource
from albert_tf.weights.pretrained_model import PretrainedModel
from albert_tf.weights.source import (
    POOLER,
    SENTENCE_ORDER,
    LoadReport,
    Source,
    assign_weights,
)
from albert_tf.weights.tfhub import SavedModelSource


def open_source(path: str) -> Source:
    """Recognises the format of a pretrained model, without reading its weights.

    Args:
      path: an output directory of ours, a folder of checkpoints or a checkpoint's name; a folder
        of the TF1 release or a checkpoint's name in it; a Hugging Face folder; a SavedModel;
        an archive (.tar.gz, .tgz, .tar, .zip) of one of these; or, if there is no such file, the
        name of a model, which is downloaded if need be (see albert_tf.pretrained.locate).

    Raises:
      AlbertError: `path` is not a path, an archive is damaged or malicious, or a model cannot be
        downloaded.
    """
    path = locate(path)
    if os.path.basename(path) in (WEIGHTS, TORCH_WEIGHTS):
        path = os.path.dirname(path) or os.curdir

    def holds(name: str) -> bool:
        return files.exists(os.path.join(path, name))

    if holds(SAVED_MODEL):
        return SavedModelSource(path)
    # Beside our own configuration, config.json may belong to something else.
    if holds(HUGGING_FACE_CONFIG) and not holds(CONFIG_FILE):
        return HuggingFaceSource(path)
    return CheckpointSource(path)


def check_architecture(config: AlbertConfig, path: str) -> None:
    """Checks settings that the shapes of the weights do not determine.

    The numbers of layers, groups and positions are not checked here: deeper models may be started
    from shallower ones (paper, appendix A.1).

    Args:
      config: of the model that is initialized.
      path: see `open_source`.

    Raises:
      AlbertError: the number of attention heads or the activation differs.
    """
    own = open_source(path).config()
    for key in ("num_attention_heads", "hidden_act"):
        if own and getattr(own, key) != getattr(config, key):
            raise AlbertError(
                f"{path} was trained with {key}={getattr(own, key)!r}, but the model has "
                f"{getattr(config, key)!r}, which would ruin its outputs; correct "
                "`albert_config_file`, or the configuration beside the weights."
            )


def load_pretrained(path: str, allow_partial: bool = False) -> PretrainedModel:
    """Loads a pretrained ALBERT of any format, and checks every variable.

    The model has the attributes `config` (read from the source, never guessed), `tokenizer` (None
    if the source has none) and `load_report`. `embed`, `fill_mask` and `score` take texts. If the
    source is a masked LM without the sentence order head (or without the pooler too), these keep
    their random weights, and a warning lists them.

    Args:
      path: a folder, checkpoint or archive in a format of docs/checkpoints.md; or the name of a
        model that is bundled ("albert_tiny_books") or downloaded ("albert/albert-base-v2").
      allow_partial: accept a source with other heads, such as a fine-tuned model. Missing heads
        and a missing pooler keep their random weights, and a warning lists the differences. The
        rest of the encoder must match.

    Raises:
      AlbertError: there is no model at `path`, it cannot be read, it has no configuration, its
        vocabulary has another size than its tokenizer, or variables are missing, unexpected or of
        another shape. All such variables are listed.
      DivergedError: a weight is not finite.

    Example:
      model = albert_tf.load_pretrained("albert_tiny_books")
      model.embed(["It was the best of times."])
      model(dict(input_word_ids=ids, input_mask=mask, input_type_ids=types))["mlm_logits"]
    """
    source = open_source(path)
    config, tokenizer = source.config(), source.tokenizer()
    if config is None:
        raise AlbertError(
            f"There is no albert_config.json with {source.location}; put it there. The number of "
            "attention heads cannot be derived from the weights."
        )
    if tokenizer:
        config.check_vocabulary(tokenizer.vocab_size, f"of {source.location}")
    model = PretrainedModel(config)
    report = assign_weights(source, model.named_weights())
    _check_report(report, allow_partial)
    model.tokenizer, model.load_report = tokenizer, report
    return model


def _check_report(report: LoadReport, allow_partial: bool) -> None:
    """Raises AlbertError for variables that do not match, or warns of them."""
    if report.repeated:
        warnings.warn(f"{report.checkpoint}: {report.positions_note}.", stacklevel=3)
    parts = []
    encoder_matches = not (report.missing_of_encoder or report.unexpected_of_encoder)
    if not encoder_matches and report.difference_in_groups:
        parts.append(report.difference_in_groups)
    if report.missing:
        parts.append(f"it lacks {', '.join(report.missing)}")
    if report.unexpected:
        parts.append(f"it also has {', '.join(report.unexpected)}")
    if not parts:
        return
    differences = printable("; ".join(parts))
    is_masked_lm = not report.unexpected and {*report.missing} <= POOLER | SENTENCE_ORDER
    if is_masked_lm or (allow_partial and encoder_matches):
        warnings.warn(f"{report.checkpoint} was loaded in part: {differences}.", stacklevel=3)
        return
    hint = " A model with other heads can be loaded in part (allow_partial)."
    raise AlbertError(
        f"The checkpoint {report.checkpoint} is not a whole pretrained model: {differences}."
        f"{hint if encoder_matches else ''}"
    )
