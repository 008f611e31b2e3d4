# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The other libraries' side of benchmarks.interchange, which runs it with their Pythons.

  python benchmarks/interchange_peers.py FUNCTION ARGUMENT…

It imports nothing of this project. Folders and .npz files are all that passes between the sides;
an .npz file holds inputs under the names that TF-Hub gives them, or a model's outputs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

_SMALL = {
    "vocab_size": 120,
    "embedding_size": 16,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
#: Models of transformers to save, by name of their folder: each tries what the others do not.
TRANSFORMERS_MODELS: dict[str, dict[str, Any]] = {
    "plain": {**_SMALL, "hidden_act": "gelu_new"},
    "exact gelu": {**_SMALL, "hidden_act": "gelu"},
    "2 groups": {**_SMALL, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "2 inner groups": {**_SMALL, "inner_group_num": 2},
    "2 groups of 2": {
        **_SMALL,
        "num_hidden_layers": 6,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
    },
    "E above H": {**_SMALL, "embedding_size": 48},
    "larger": {
        "vocab_size": 2000,
        "embedding_size": 64,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "max_position_embeddings": 128,
    },
}


def probe_inputs(vocab_size: int, length: int) -> dict[str, np.ndarray]:
    """Three sequences, two of them padded, each of two segments; int32 [3, length]."""
    rng = np.random.default_rng(0)
    lengths = np.array([[length], [length - 3], [length // 2]])
    places = np.arange(length)[np.newaxis]
    mask = places < lengths
    return {
        "input_word_ids": (rng.integers(1, vocab_size, [3, length]) * mask).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "input_type_ids": ((places >= lengths // 2) & mask).astype(np.int32),
        "masked_lm_positions": np.sort(rng.integers(0, length // 2, [3, 4])).astype(np.int32),
    }


def _transformers_outputs(model: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of an ALBERT of transformers by our names; logits of all positions."""
    import torch

    names = {"input_ids": "word_ids", "attention_mask": "mask", "token_type_ids": "type_ids"}
    batch = {k: torch.tensor(inputs[f"input_{v}"]).long() for k, v in names.items()}
    with torch.no_grad():
        encoded = model.albert(**batch)
        heads = model(**batch, output_hidden_states=True)
    outputs = {"sequence_output": encoded.last_hidden_state, "pooled_output": encoded.pooler_output}
    if hasattr(heads, "prediction_logits"):
        outputs.update(mlm_logits=heads.prediction_logits, sop_logits=heads.sop_logits)
    else:
        outputs.update(mlm_logits=heads.logits)
    return {name: value.numpy() for name, value in outputs.items() if value is not None}


def save_transformers(folder: str) -> None:
    """Saves the models, with random weights, as folder/MODEL/{safetensors,bin} and outputs.

    Every weight is random, for a bias of 0 or a scale of 1 would hide mistakes.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    classes = dict.fromkeys(TRANSFORMERS_MODELS, "AlbertForPreTraining")
    classes["masked LM alone"] = "AlbertForMaskedLM"
    for name, kind in classes.items():
        config = transformers.AlbertConfig(
            **{"num_hidden_groups": 1, **TRANSFORMERS_MODELS.get(name, _SMALL)}
        )
        model = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(os.path.join(folder, name, "safetensors"))
        folder_of_bin = os.path.join(folder, name, "bin")
        model.config.save_pretrained(folder_of_bin)
        # save_pretrained no longer writes this format, which older releases left everywhere.
        torch.save(model.state_dict(), os.path.join(folder_of_bin, "pytorch_model.bin"))
        inputs = probe_inputs(config.vocab_size, 24)
        np.savez(os.path.join(folder, name, "inputs.npz"), **inputs)
        outputs = _transformers_outputs(model, inputs)
        np.savez(os.path.join(folder, name, "outputs.npz"), **outputs)


def run_transformers(folder: str, inputs: str, outputs: str) -> None:
    """Loads a folder as a user does, and writes outputs; any weight left over is an error."""
    import transformers

    model, report = transformers.AlbertForPreTraining.from_pretrained(
        folder, output_loading_info=True
    )
    odd = {what: list(names) for what, names in report.items() if names}
    if odd:
        raise SystemExit(f"transformers: {odd}")
    np.savez(outputs, **_transformers_outputs(model.eval(), np.load(inputs)))


def describe_transformers() -> None:
    """Prints the versions; PyTorch's only if it is there."""
    import transformers

    versions = f"transformers {transformers.__version__}"
    if importlib.util.find_spec("torch"):
        import torch

        versions += f", torch {torch.__version__}"
    print(versions)


def describe_model_garden() -> None:
    """Prints the versions."""
    names = ("tf-models-official", "tensorflow", "tensorflow-hub", "tensorflow-text")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in names))


def tokenize_transformers(folder: str, texts: str, ids: str) -> None:
    """Ids of texts by each of the library's tokenizers, as JSON by class."""
    import transformers

    with open(texts, encoding="utf-8") as file:
        lines = json.load(file)
    found = {}
    for kind in ("AlbertTokenizer", "AlbertTokenizerFast"):
        tokenizer = getattr(transformers, kind).from_pretrained(folder)
        # Since transformers 5, both are one class.
        found[type(tokenizer).__name__] = [
            tokenizer(line, add_special_tokens=False)["input_ids"] for line in lines
        ]
    with open(ids, "w", encoding="utf-8") as file:
        json.dump(found, file)


def save_model_garden(folder: str, vocabulary: str) -> None:
    """Exports an ALBERT with random weights, and a preprocessor, by the library's own functions.

    Into folder/encoder go the SavedModel, inputs.npz and outputs.npz beside it, and
    folder/preprocessor.
    """
    import tensorflow as tf
    from official.nlp.configs import encoders
    from official.nlp.modeling import models
    from official.nlp.tools import export_tfhub_lib

    config = encoders.EncoderConfig(
        type="albert",
        albert=encoders.AlbertEncoderConfig(
            vocab_size=30000,
            embedding_width=16,
            hidden_size=32,
            intermediate_size=64,
            num_layers=3,
            num_attention_heads=4,
            max_position_embeddings=64,
        ),
    )
    pretrainer = models.BertPretrainerV2(
        encoder_network=encoders.build_encoder(config),
        mlm_activation=tf.keras.activations.get("gelu"),
    )
    pretrainer(pretrainer.inputs)
    rng = np.random.default_rng(0)
    for weight in pretrainer.weights:
        noise = rng.normal(scale=0.1, size=weight.shape)
        weight.assign_add(noise.astype(np.float32))
    checkpoint = tf.train.Checkpoint(**pretrainer.checkpoint_items)
    export_tfhub_lib.export_model(
        os.path.join(folder, "encoder"),
        encoder_config=config,
        model_checkpoint_path=checkpoint.save(os.path.join(folder, "checkpoint", "model")),
        with_mlm=True,
        sp_model_file=vocabulary,
    )
    np.savez(os.path.join(folder, "inputs.npz"), **probe_inputs(30000, 24))
    run_hub(*(os.path.join(folder, name) for name in ("encoder", "inputs.npz", "outputs.npz")))
    export_tfhub_lib.export_preprocessing(
        os.path.join(folder, "preprocessor"),
        sp_model_file=vocabulary,
        do_lower_case=True,
        tokenize_with_offsets=False,
        default_seq_length=64,
    )


def run_hub(saved_model: str, inputs: str, outputs: str) -> None:
    """Outputs of a SavedModel through tensorflow_hub, those of .mlm and .sop included."""
    import tensorflow as tf
    import tensorflow_hub as hub

    batch = {name: tf.constant(value) for name, value in np.load(inputs).items()}
    positions = {"masked_lm_positions": batch.pop("masked_lm_positions")}
    root = hub.load(saved_model)
    results = dict(hub.KerasLayer(saved_model)(batch))
    if hasattr(root, "mlm"):
        results["mlm_logits"] = root.mlm({**batch, **positions})["mlm_logits"]
    if hasattr(root, "sop"):
        results["sop_logits"] = root.sop(batch)["sop_logits"]
    del results["encoder_outputs"]
    np.savez(outputs, **{name: value.numpy() for name, value in results.items()})


def run_model_garden(saved_model: str, inputs: str, outputs: str) -> None:
    """Outputs of an encoder SavedModel through the function by which Model Garden's tasks take it.

    The encoder is made trainable there, and must have trainable variables.
    """
    import tensorflow as tf
    from official.nlp.tasks import utils

    encoder = utils.get_encoder_from_hub(saved_model)
    if not encoder.trainable_variables:
        raise SystemExit("no trainable variables")
    batch = {k: tf.constant(v) for k, v in np.load(inputs).items() if k in encoder.input}
    results = encoder(batch)
    names = ("sequence_output", "pooled_output")
    np.savez(outputs, **{name: results[name].numpy() for name in names})


def tokenize_hub(preprocessor: str, texts: str, ids: str) -> None:
    """Ids of texts by a preprocessor SavedModel, as JSON."""
    import tensorflow as tf
    import tensorflow_hub as hub
    import tensorflow_text  # noqa: F401  (registers its operations)

    with open(texts, encoding="utf-8") as file:
        lines = json.load(file)
    tokens = hub.load(preprocessor).tokenize(tf.constant(lines))
    with open(ids, "w", encoding="utf-8") as file:
        json.dump(tokens.merge_dims(1, -1).to_list(), file)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
