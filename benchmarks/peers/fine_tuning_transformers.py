# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning with transformers' ALBERT for PyTorch, as its Trainer does. See protocol.py.

Batches are grouped by length with the Trainer's own sampler and padded to a multiple of 8. The
setup has "config", "policy", "mode", "threads" and
  num_labels: of a classifier; None: the model answers questions with spans.
  examples: path of an .npz file with "ids" and "segments" (all sequences one after the other),
    "lengths", and "targets" [sequences, 1 or 2]: label, or first and last position of the answer.
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
#: What `protocol.Peer.facts` returns: of all training batches so far, without and with padding.
_FACTS = {"tokens": 0, "positions": 0}


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Returns training steps with fused AdamW and clipped gradients, or whole evaluations."""
    torch.manual_seed(0)
    torch.set_num_threads(setup["threads"])
    config = setup["config"]
    activation = ACTIVATIONS.get(config["hidden_act"], config["hidden_act"])
    options = {**config, "hidden_act": activation, "attn_implementation": "sdpa"}
    if setup["num_labels"] is None:
        model = transformers.AlbertForQuestionAnswering(transformers.AlbertConfig(**options))
        names = "start_positions", "end_positions"
    else:
        options["num_labels"] = setup["num_labels"]
        model = transformers.AlbertForSequenceClassification(transformers.AlbertConfig(**options))
        names = ("labels",)
    function = torch.compile(model, dynamic=True) if setup["mode"] == "compile" else model
    examples = np.load(setup["examples"])
    lengths = examples["lengths"].tolist()
    bounds = np.cumsum(lengths)[:-1]
    columns = [np.split(examples[name], bounds) for name in ("ids", "segments")]
    targets, size = examples["targets"], setup["batch_size"]

    def forward(rows: Sequence[int], train: bool) -> Any:
        inputs = _padded(*([column[i] for i in rows] for column in columns))
        if train:
            inputs.update(zip(names, torch.from_numpy(targets[rows]).long().unbind(1)))
            _FACTS["tokens"] += inputs["attention_mask"].sum().item()
            _FACTS["positions"] += inputs["attention_mask"].numel()
        with torch.autocast("cpu", torch.bfloat16, setup["policy"] == "mixed_bfloat16"):
            return function(**inputs)

    def evaluate(passes: int) -> float:
        model.eval()
        order = np.argsort(lengths)[::-1]
        with torch.inference_mode():
            for _ in range(passes):
                for begin in range(0, len(order), size):
                    forward(order[begin : begin + size].copy(), train=False)
        return 0.0

    batches = _batches(lengths, size)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-9, fused=True)

    def train(steps: int) -> float:
        model.train()
        for _ in range(steps):
            optimizer.zero_grad()
            loss = forward(next(batches), train=True).loss
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


def _padded(texts: Sequence[np.ndarray], segments: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    longest = max(map(len, texts))
    ids = np.zeros([len(texts), -(-longest // _MULTIPLE) * _MULTIPLE], np.int64)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for row, (text, segment) in enumerate(zip(texts, segments)):
        end = len(text)
        ids[row, :end], types[row, :end], mask[row, :end] = text, segment, 1
    columns = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
    return {name: torch.from_numpy(values) for name, values in columns.items()}


if __name__ == "__main__":
    protocol.serve(build, ("transformers", "torch"), lambda: _FACTS)
