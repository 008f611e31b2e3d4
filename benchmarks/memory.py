# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the peak memory of a pretraining step, with and without recomputation.

  python -m benchmarks.memory --configs=albert_base_v2,albert_xxlarge_v2 --seq_lengths=128,512

Each configuration runs real steps, including LAMB, in its own process. "peak" is the largest
resident memory and "state" the memory with weights and optimizer alone, both without the memory
that the process has after its imports. A process that exceeds --limit_gib is stopped and marked.
Prints a table and one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from benchmarks import machine
from benchmarks.path_lists import define_path_list
from benchmarks.random_step import PRECISIONS, RandomStep

_CHILD = "import sys; from benchmarks import memory; memory.child(sys.argv[1])"

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    define_path_list(
        "configs", [f"albert_{size}_v2" for size in ("base", "large", "xlarge", "xxlarge")],
        "Models: presets or JSON files."
    )  # fmt: skip
    flags.DEFINE_list("seq_lengths", ["128", "512"], "Positions of an example.")
    flags.DEFINE_list("micro_batches", ["1x1", "8x1", "1x8"], "Examples × accumulated parts.")
    flags.DEFINE_list("precisions", ["bf16"], f"Of {', '.join(PRECISIONS)}.")
    flags.DEFINE_list("recompute", ["no", "yes"], "no, yes or both.")
    flags.DEFINE_integer("steps", 2, "Steps; the last one is timed. The first one also traces.", 1)
    flags.DEFINE_float("limit_gib", 20.0, "Resident memory at which a process is ended.", 0.1)
    flags.DEFINE_bool(
        "system_allocator", False, "Let TensorFlow allocate by malloc (environment variable "
        "TF_ONEDNN_USE_SYSTEM_ALLOCATOR), instead of keeping freed memory in pools of its own."
    )  # fmt: skip


def _resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _watch(limit: int) -> None:
    """Ends the process when it holds more than `limit` bytes, before the machine has to."""
    while _resident() < limit:
        time.sleep(0.05)
    os._exit(3)


def child(argument: str) -> None:
    """Measures one configuration in this process and prints it as JSON.

    Args:
      argument: JSON object of what `_run` gives.
    """
    given = json.loads(argument)
    # All that a step imports, so that it counts as the baseline.
    import albert_tf.optimization.optimizer
    import albert_tf.tasks.pretraining.task  # noqa: F401
    from albert_tf.keras2 import keras

    keras.utils.set_random_seed(1)
    baseline = _resident()
    limit = int(given["limit_gib"] * 2**30)
    threading.Thread(target=_watch, args=(limit,), daemon=True).start()
    step = RandomStep(
        AlbertConfig.load(given["config"]),
        given["seq_length"],
        given["micro_batch"] * given["parts"],
        PRECISIONS[given["precision"]],
        gradient_accumulation_steps=given["parts"],
        recompute=given["recompute"],
    )
    state = _resident() - baseline
    for _ in range(given["steps"]):
        began = time.perf_counter()
        metrics = step()
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - baseline
    loss = float(metrics["loss"][0])
    result = {"state_bytes": state, "peak_bytes": peak, "step_seconds": seconds, "loss": loss}
    print(json.dumps({**result, "machine": machine.describe()}))


def _run(**given: Any) -> dict[str, Any]:
    """Measures one configuration in a new process."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if FLAGS.system_allocator:
        environment["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] = "1"
    command = [sys.executable, "-c", _CHILD, json.dumps(given)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode == 3:
        return {**given, "peak_bytes": None}
    if done.returncode:
        raise AlbertError(f"The step of {given} failed: {done.stderr.strip()[-500:]}")
    return {**given, **json.loads(done.stdout.splitlines()[-1])}


def _line(row: dict[str, Any]) -> str:
    name = os.path.basename(row["config"]).replace("albert_", "")
    again = "yes" if row["recompute"] else "no"
    batch = f"{row['micro_batch']}x{row['parts']}"
    shape = f"{name:<12}{row['seq_length']:>6}{batch:>7}{row['precision']:>9}{again:>11}"
    if row["peak_bytes"] is None:
        return f"{shape}{'':>11}{'> ' + format(row['limit_gib'], '.0f'):>11}"
    gib = (row["state_bytes"] / 2**30, row["peak_bytes"] / 2**30)
    return f"{shape}{gib[0]:>11.2f}{gib[1]:>11.2f}{row['step_seconds']:>11.1f}"


def _main() -> None:
    heads = ("recompute", "state GiB", "peak GiB", "s/step")
    print(f"{'':<12}{'length':>6}{'batch':>7}{'':>9}" + "".join(f"{head:>11}" for head in heads))
    rows = []
    for config, length, batch, precision, again in itertools.product(
        FLAGS.configs, FLAGS.seq_lengths, FLAGS.micro_batches, FLAGS.precisions, FLAGS.recompute
    ):
        micro_batch, parts = (int(number) for number in batch.split("x"))
        row = _run(
            config=config,
            seq_length=int(length),
            micro_batch=micro_batch,
            parts=parts,
            precision=precision,
            recompute=again == "yes",
            limit_gib=FLAGS.limit_gib,
            steps=FLAGS.steps,
        )
        print(_line(row), flush=True)
        rows.append(row)
    found = [row.pop("machine") for row in rows if "machine" in row]
    on = found[0] if found else None
    print(on)
    allocator = "system" if FLAGS.system_allocator else "pooled"
    print(json.dumps({"benchmark": "memory", "allocator": allocator, "rows": rows, "machine": on}))


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
