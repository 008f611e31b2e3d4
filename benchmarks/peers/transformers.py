# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The training step of transformers' ALBERT for PyTorch. See protocol.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional

from benchmarks.peers import protocol

#: Names of the same functions there.
ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "gelu_erf": "gelu"}


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Forward and backward pass, gradients clipped, fused AdamW."""
    torch.manual_seed(0)
    torch.set_num_threads(setup["threads"])
    device = setup.get("device", "cpu")
    config = setup["config"]
    model = transformers.AlbertForPreTraining(
        transformers.AlbertConfig(
            **{**config, "hidden_act": ACTIVATIONS.get(config["hidden_act"], config["hidden_act"])},
            classifier_dropout_prob=0.0,
            attn_implementation="sdpa",
        )
    )
    model.to(device).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, fused=True)

    batch = {
        name: torch.tensor(value).long().to(device)
        for name, value in np.load(setup["batch"]).items()
    }
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
    }
    labels, order = batch["labels"], batch["next_sentence_labels"]
    positions = batch["masked_lm_positions"][..., None]
    masked_ids = batch["masked_lm_ids"].flatten()

    def library_loss() -> torch.Tensor:
        return model(**inputs, labels=labels, sentence_order_label=order).loss

    def masked_only_loss() -> torch.Tensor:
        encoded = model.albert(**inputs)
        hidden = encoded.last_hidden_state
        hidden = hidden.gather(1, positions.expand(-1, -1, hidden.shape[2]))
        logits = model.predictions(hidden).flatten(0, 1)
        return functional.cross_entropy(logits, masked_ids) + functional.cross_entropy(
            model.sop_classifier(encoded.pooler_output), order
        )

    def loss_function() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, setup["policy"] == "mixed_bfloat16"):
            return masked_only_loss() if setup["masked_only"] else library_loss()

    if setup["mode"] != "eager":
        mode = "max-autotune" if setup["mode"] == "max_autotune" else "default"
        loss_function = torch.compile(loss_function, mode=mode)

    def run(steps: int) -> float:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_function()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        return loss.item()

    return run


def facts() -> dict[str, Any]:
    """Returns the most bytes that tensors took on a GPU; None without one."""
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return {"peak_bytes": peak}


if __name__ == "__main__":
    protocol.serve(build, ("transformers", "torch"), facts)
