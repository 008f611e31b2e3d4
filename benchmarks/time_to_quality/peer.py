# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains transformers' AlbertForMaskedLM for PyTorch for so many minutes.

As transformers' example for masked language models does it (run_mlm_no_trainer.py): the tokens of
all text in a row, cut into blocks, masked anew in every epoch, AdamW with a linear schedule; here
with torch.compile, in bfloat16 or float32 (--precision). The schedule follows the clock, so that it
ends with the time. A share of the time can go to short blocks first. Runs in the peer's
environment, without this project or TensorFlow; writes a Hugging Face folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator

import numpy as np
import torch
import transformers
from torch.nn import functional

#: Names of the same functions in transformers.
ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "gelu_erf": "gelu"}
WARM_UP_SHARE = 0.06
SHORT_LENGTH, SEQ_LENGTH = 32, 128
#: Arguments that training.json repeats.
SETTINGS = {"learning_rate", "batch_size", "short_share", "masked_share", "precision"}


def parse_arguments() -> argparse.Namespace:
    """Returns the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", nargs="+", required=True, help="one sentence per line")
    parser.add_argument("--tokenizer_dir", required=True, help="folder with spiece.model")
    parser.add_argument("--albert_config_file", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--short_share", type=float, default=0.0, help="of the time")
    parser.add_argument("--masked_share", type=float, default=0.15, help="of the positions")
    parser.add_argument("--precision", choices=("bf16", "float32"), default="bf16")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def read_ids(paths: list[str], tokenizer: transformers.AlbertTokenizer) -> np.ndarray:
    """Returns the text's tokens in a row, int64 [n]."""
    ids: list[int] = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            lines = [line.strip() for line in f if line.strip()]
        for begin in range(0, len(lines), 10_000):
            encoded = tokenizer(lines[begin : begin + 10_000], add_special_tokens=False)
            for line in encoded["input_ids"]:
                ids += line
    return np.array(ids, np.int64)


def cut(ids: np.ndarray, tokenizer: transformers.AlbertTokenizer, length: int) -> np.ndarray:
    """Returns tokens as blocks ``[CLS] … [SEP]``, int64 [n, length]; drops what is left over."""
    inner = length - 2
    rows = ids[: len(ids) // inner * inner].reshape(-1, inner)
    edge = np.ones((len(rows), 1), np.int64)
    return np.hstack([tokenizer.cls_token_id * edge, rows, tokenizer.sep_token_id * edge])


def batches(
    blocks: np.ndarray,
    batch_size: int,
    masked_share: float,
    tokenizer: transformers.AlbertTokenizer,
    seed: int,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yields ids, masked positions and labels: 80 % [MASK], 10 % another piece, 10 % kept.

    Every row has the same number of masked positions, so that shapes are static and the logits of
    other positions need not be computed.
    """
    rng = np.random.default_rng(seed)
    count = round(masked_share * blocks.shape[1])
    while True:
        order = rng.permutation(len(blocks))
        for begin in range(0, len(order) - batch_size + 1, batch_size):
            ids = blocks[order[begin : begin + batch_size]].copy()
            ranks = rng.random((batch_size, blocks.shape[1] - 2))
            positions = np.sort(1 + np.argpartition(ranks, count, axis=1)[:, :count], axis=1)
            labels = np.take_along_axis(ids, positions, 1)
            draw = rng.random(labels.shape)
            other = rng.integers(5, len(tokenizer), labels.shape)
            new = np.where(draw < 0.8, tokenizer.mask_token_id, np.where(draw < 0.9, other, labels))
            np.put_along_axis(ids, positions, new, 1)
            yield tuple(map(torch.from_numpy, (ids, positions, labels)))


def main() -> None:
    """Trains and saves the model, with training.json about the run."""
    began = time.monotonic()
    args = parse_arguments()
    torch.manual_seed(args.seed)
    tokenizer = transformers.AlbertTokenizer.from_pretrained(args.tokenizer_dir)
    ids = read_ids(args.text, tokenizer)
    blocks = {length: cut(ids, tokenizer, length) for length in (SHORT_LENGTH, SEQ_LENGTH)}
    with open(args.albert_config_file, encoding="utf-8") as f:
        values = json.load(f)
    values.pop("parameter_sharing", None)
    activation = values.get("hidden_act", "gelu")
    values["hidden_act"] = ACTIVATIONS.get(activation, activation)
    config = transformers.AlbertConfig(**values, attn_implementation="sdpa")
    model = transformers.AlbertForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, weight_decay=0.01, fused=True
    )
    steps = dict.fromkeys(blocks, 0)

    def loss_of(ids: torch.Tensor, positions: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            hidden = model.albert(ids).last_hidden_state
            index = positions[..., None].expand(-1, -1, hidden.shape[2])
            logits = model.predictions(hidden.gather(1, index))
            return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    compiled = torch.compile(loss_of, dynamic=False)
    losses, shown = [], began
    positions = args.batch_size * SEQ_LENGTH
    streams = {
        length: batches(rows, positions // length, args.masked_share, tokenizer, args.seed)
        for length, rows in blocks.items()
    }
    # A user's second run finds the compiled code in a cache, so compiling does not count.
    compiling = time.monotonic()
    for length in [SHORT_LENGTH] * (args.short_share > 0) + [SEQ_LENGTH]:
        compiled(*next(streams[length])).backward()
    began += time.monotonic() - compiling
    while (share := (time.monotonic() - began) / (60 * args.minutes)) < 1:
        length = SHORT_LENGTH if share < args.short_share else SEQ_LENGTH
        rate = min(share / WARM_UP_SHARE, (1 - share) / (1 - WARM_UP_SHARE))
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * rate
        optimizer.zero_grad()
        loss = compiled(*next(streams[length]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps[length] += 1
        losses.append(loss.item())
        if time.monotonic() - shown > 60:
            shown = time.monotonic()
            loss_now = np.mean(losses[-100:])
            print(f"{share:.0%} step {sum(steps.values())} loss {loss_now:.3f}", flush=True)
    model.save_pretrained(args.output_dir)
    shutil.copy(os.path.join(args.tokenizer_dir, "spiece.model"), args.output_dir)
    result = {
        **{name: value for name, value in vars(args).items() if name in SETTINGS},
        "steps": steps,
        "positions": sum(steps.values()) * positions,
        "loss": float(np.mean(losses[-100:])),
        "minutes": (time.monotonic() - began) / 60,
    }
    with open(os.path.join(args.output_dir, "training.json"), "w", encoding="utf-8") as f:
        json.dump(result, f)


if __name__ == "__main__":
    main()
