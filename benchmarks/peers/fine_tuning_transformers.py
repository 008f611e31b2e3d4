# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning with transformers' ALBERT for PyTorch, as its Trainer does. See protocol.py.

Batches are grouped by length with the Trainer's own sampler and padded to a multiple of 8. The
setup has "config", "policy", "mode", "threads", "num_labels" and
  examples: path of an .npz file with "ids" (all texts one after the other), "lengths" and "labels".
  batch_size: examples of a batch.
  train: whether a step trains on a batch; otherwise it evaluates all examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from transformers.trainer_pt_utils import get_length_grouped_indices

from benchmarks.peers import protocol
from benchmarks.peers.transformers import ACTIVATIONS

#: Of padded batches, as the library's guides advise for units of low precision.
_MULTIPLE = 8


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Returns training steps with fused AdamW and clipped gradients, or whole evaluations."""
    torch.manual_seed(0)
    torch.set_num_threads(setup["threads"])
    config = setup["config"]
    activation = ACTIVATIONS.get(config["hidden_act"], config["hidden_act"])
    model = transformers.AlbertForSequenceClassification(
        transformers.AlbertConfig(
            **{**config, "hidden_act": activation},
            num_labels=setup["num_labels"],
            attn_implementation="sdpa",
        )
    )
    function = torch.compile(model, dynamic=True) if setup["mode"] == "compile" else model
    examples = np.load(setup["examples"])
    lengths = examples["lengths"].tolist()
    texts = np.split(examples["ids"], np.cumsum(lengths)[:-1])
    labels, size = examples["labels"], setup["batch_size"]

    def forward(rows: Sequence[int]) -> Any:
        with torch.autocast("cpu", torch.bfloat16, setup["policy"] == "mixed_bfloat16"):
            return function(**_padded([texts[i] for i in rows]), labels=torch.tensor(labels[rows]))

    def evaluate(passes: int) -> float:
        model.eval()
        order = np.argsort(lengths)[::-1]
        with torch.inference_mode():
            for _ in range(passes):
                for begin in range(0, len(order), size):
                    loss = forward(order[begin : begin + size].copy()).loss
        return loss.item()

    batches = _batches(lengths, size)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-9, fused=True)

    def train(steps: int) -> float:
        model.train()
        for _ in range(steps):
            optimizer.zero_grad()
            loss = forward(next(batches)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        return loss.item()

    return train if setup["train"] else evaluate


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yields the rows of full batches, epoch after epoch."""
    while True:
        order = get_length_grouped_indices(lengths, size)
        for begin in range(0, len(order) - size + 1, size):
            yield order[begin : begin + size]


def _padded(texts: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    longest = max(map(len, texts))
    ids = np.zeros([len(texts), -(-longest // _MULTIPLE) * _MULTIPLE], np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


if __name__ == "__main__":
    protocol.serve(build, ("transformers", "torch"))
