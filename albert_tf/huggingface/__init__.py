# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's folders: downloads, config.json, the tokenizer and the weights."""

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
#: A pickle, which PyTorch can read as weights alone.
TORCH_WEIGHTS = "pytorch_model.bin"
#: The first of these is the vocabulary.
VOCABULARIES = ("spiece.model", "vocab.txt", "tokenizer.json")
TOKENIZER_CONFIG = "tokenizer_config.json"
