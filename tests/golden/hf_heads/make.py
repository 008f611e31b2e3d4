# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes the folders here with transformers 5.24.0: models of tasks with random weights.

The folder "embedding" is by sentence-transformers 6.2.0.

  python tests/golden/hf_heads/make.py

In an environment of transformers (benchmarks/README.md). Each has outputs in expected.npz.
"""

import pathlib
import tempfile

import numpy as np
import sentence_transformers
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff ##able want ##ed runn ##ing , the re ##sume 5 ##0"
TEXTS = ["the unaffable resume", "50 running, wanted", "Wanted: the running résumé", "unwanted"]
LABELS = {0: "so-so", 1: "bad", 2: "good"}
HEADS = {
    "classification": ("AlbertForSequenceClassification", {"id2label": LABELS}),
    "regression": ("AlbertForSequenceClassification", {"num_labels": 1}),
    "multi_label": (
        "AlbertForSequenceClassification",
        {"id2label": LABELS, "problem_type": "multi_label_classification"},
    ),
    "choice": ("AlbertForMultipleChoice", {}),
    "answering": ("AlbertForQuestionAnswering", {}),
    "embedding": ("AlbertModel", {}),
    "tagging": ("AlbertForTokenClassification", {"id2label": dict(enumerate(["O", "B-A", "I-A"]))}),
}

with tempfile.TemporaryDirectory() as folder:
    vocabulary = pathlib.Path(folder, "vocab.txt")
    vocabulary.write_text("".join(f"{piece}\n" for piece in PIECES.split()))
    tokenizer = transformers.BertTokenizer.from_pretrained(folder, model_max_length=72)
torch.manual_seed(0)
for name, (kind, values) in HEADS.items():
    model = getattr(transformers, kind)(
        transformers.AlbertConfig(
            vocab_size=len(tokenizer), embedding_size=4, hidden_size=8, intermediate_size=12,
            num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=80, **values,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        batch = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
        if name == "choice":  # Each text with two options.
            batch = {k: torch.stack([v[:2], v[2:]]) for k, v in batch.items()}
        outputs = model(**batch)
    model.save_pretrained(FOLDER / name)
    tokenizer.save_pretrained(FOLDER / name)
    found = {k: v.numpy() for k, v in outputs.items() if k.endswith("logits")}
    np.savez(FOLDER / name / "expected.npz", **found)
    if name == "embedding":
        parts = sentence_transformers.sentence_transformer.modules
        encoder = parts.Transformer(str(FOLDER / name), max_seq_length=24)
        pooling = parts.Pooling(8, pooling_mode="mean")
        model = sentence_transformers.SentenceTransformer(
            modules=[encoder, pooling, parts.Normalize()]
        )
        model.save(str(FOLDER / name), create_model_card=False)
        found = {"vectors": model.encode(TEXTS)}
        np.savez(FOLDER / name / "expected.npz", **found)
