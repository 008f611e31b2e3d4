# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports the encoder and the preprocessor of TF-Hub's text API from a folder with a model."""

from __future__ import annotations

from albert_tf.export.encoder import encoder_export
from albert_tf.export.model_folder import ModelFolder
from albert_tf.export.precision import export_in
from albert_tf.export.preprocessor import KIND, build_preprocessor, preprocessor_probes
from albert_tf.export.publish import Export
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.training.specs import FLOAT32


def export_preprocessor(
    source: ModelFolder, path: str, seq_length: int, overwrite: bool = False
) -> None:
    """Writes the preprocessor SavedModel; see albert_tf.export.preprocessor."""
    tokenizer = source.config_and_tokenizer()[1]
    root, signatures = build_preprocessor(tokenizer, seq_length)
    export = Export(KIND, root, signatures, preprocessor_probes(tokenizer, seq_length))
    source.publish(export, path, tokenizer, overwrite=overwrite)


def export_encoder(
    source: ModelFolder,
    path: str,
    with_heads: bool,
    overwrite: bool = False,
    precision: str = FLOAT32,
) -> None:
    """Writes the encoder SavedModel, on request with its heads; see albert_tf.export.encoder.

    Args:
      source: the model.
      path: the folder to create.
      with_heads: with `.mlm` and `.sop`.
      overwrite: see folders.new_folder.
      precision: one of PRECISIONS.
    """
    config, tokenizer = source.config_and_tokenizer()
    model_class = AlbertPretrainer if with_heads else AlbertEncoder
    model = model_class(config, dtype="float32")
    source.load(model)
    export = export_in(
        precision,
        model,
        lambda dtype: model_class(config, dtype),
        lambda m: encoder_export(m, tokenizer),
    )
    source.publish(export, path, tokenizer, model, overwrite)
