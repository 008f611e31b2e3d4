# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's folders: downloads, config.json, the tokenizer and the weights."""

import re

CONFIG = "config.json"
#: Of sentence-transformers.
MODULES = "modules.json"
MODULE_FILES = ("sentence_bert_config.json", "1_Pooling/config.json")
WEIGHTS = "model.safetensors"
#: A pickle, which PyTorch can read as weights alone.
TORCH_WEIGHTS = "pytorch_model.bin"
#: The first of these is the vocabulary.
VOCABULARIES = ("spiece.model", "vocab.txt", "tokenizer.json")
TOKENIZER_CONFIG, ADDED_TOKENS = "tokenizer_config.json", "added_tokens.json"
#: Ends the name of the file that says which tensor is in which part of large weights.
INDEX = ".index.json"
#: The names of parts, and of all files of weights.
PARTS = ("model-*-of-*.safetensors", "pytorch_model-*-of-*.bin")
WEIGHT_FILE = re.compile(
    r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin)(\.index\.json)?"
)
