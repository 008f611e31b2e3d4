# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts with TensorFlow on a GPU, and compares them with the CPU.

  python -m scripts.gpu_check --output_dir=runs/gpu_check

The demo's pretraining, once killed and resumed; the training step of a large model with and without
XLA, in bfloat16 and float16; fine-tuning for classes and for questions, with predictions that the
CPU repeats; exports. If a part fails, the next ones still run. gpu_check.json in the output
directory has all figures; the exit status is 1 if a part failed. It was made for five minutes, and
so far ran on CPUs alone, with small settings:

  python -m scripts.gpu_check --output_dir=runs/check --config=albert_tiny \\
    --rows=8 --steps=6 --demo_steps=60
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.pretrained import DEFAULT, FOLDER
from benchmarks.common import describe_machine
from benchmarks.flops import training_flops
from benchmarks.gpu_step.run import peak_flops
from benchmarks.random_step import predictions_of
from demo.run import AUTHORS, CONFIG, RECORDS, SHORT_CONFIG, UNREAD, stages

ROOT = Path(__file__).resolve().parents[1]
LENGTH = 128
PRECISIONS = ("mixed_bfloat16", "mixed_float16")
#: Probabilities of GPU and CPU differ by this at most: products of the GPU have 10 or 7 bits.
TOLERANCE = 0.05
_DEVICES = """import json, tensorflow as tf
devices = tf.config.list_physical_devices("GPU")
print(json.dumps({"tensorflow": tf.__version__, "built": dict(tf.sysconfig.get_build_info()),
                  "devices": [tf.config.experimental.get_device_details(x) for x in devices]},
                 default=str))"""


def define_flags() -> None:
    """Defines the flags."""
    define_path("output_dir", None, "A new folder.", required=True)
    flags.DEFINE_string("config", "albert_base_v2", "The preset whose training step is timed.")
    flags.DEFINE_integer("rows", 128, "Sequences of a timed step.", 1)
    flags.DEFINE_integer("steps", 60, "Timed steps; the last third counts.", 3)
    flags.DEFINE_integer("demo_steps", 1200, "Steps of the demo's pretraining.", 30)


class GpuCheck:
    """Runs the parts; `results` has an entry for each, with its seconds or its error."""

    def __init__(self, folder: str) -> None:
        self.folder, self.results = folder, {"machine": describe_machine()}

    def part(self, name: str, function: Callable[[], Mapping[str, Any]]) -> None:
        """Runs a part and writes all results so far; an error is one of them."""
        print(f"{name} …", flush=True)
        began, found = time.monotonic(), {"passed": True}
        try:
            found |= function()
        except Exception as error:  # The others are still to run.
            found |= {"passed": False, "error": f"{type(error).__name__}: {error}"}
        self.results[name] = {**found, "seconds": round(time.monotonic() - began, 1)}
        print(json.dumps(self.results[name]), flush=True)
        files.write_json(self.path("gpu_check.json"), self.results)

    def path(self, *names: str) -> str:
        """Returns the path of something in the output directory."""
        return os.path.join(self.folder, *names)

    def start(self, name: str, *arguments: object, on_cpu: bool = False) -> subprocess.Popen:
        """Starts Python with arguments; what it prints goes to NAME.log."""
        # So that a process does not take all memory, and what it takes can be seen.
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        if on_cpu:
            env["CUDA_VISIBLE_DEVICES"] = "-1"
        with open(self.path(f"{name}.log"), "a", encoding="utf-8") as log:
            return subprocess.Popen(
                [sys.executable, *map(str, arguments)], cwd=ROOT, env=env, stdout=log, stderr=log
            )

    def run(self, name: str, *arguments: object, on_cpu: bool = False) -> None:
        """Runs Python with arguments; raises AlbertError with what it printed last if it fails."""
        if status := self.start(name, *arguments, on_cpu=on_cpu).wait():
            last = [line for line in read_lines(self.path(f"{name}.log")) if line.strip()][-1:]
            raise AlbertError(f"{name} ended with status {status}: {' '.join(last)}")

    def devices(self) -> dict[str, Any]:
        """Returns what TensorFlow says of the GPUs and of itself."""
        self.run("devices", "-c", _DEVICES)
        found = json.loads([*read_lines(self.path("devices.log"))][-1])
        return {**found, "passed": bool(found["devices"])}

    def demo(self) -> dict[str, Any]:
        """Prepares the demo's data and pretrains; returns the last figures of the training."""
        config = {**files.read_json(CONFIG), "max_position_embeddings": RECORDS["max_seq_length"]}
        files.write_json(self.path("demo", SHORT_CONFIG), config)
        for number, stage in enumerate(self._demo_stages()):
            self.run(f"demo-{number}", *stage.arguments(), on_cpu=number < 5)
        return _last_metrics(self.path("demo/pretrained"))

    def _demo_stages(self) -> list[Any]:
        """Returns the stages of the demo up to its pretraining, which has `demo_steps`."""
        chosen = stages(self.path("demo"))[:6]
        steps = FLAGS.demo_steps
        chosen[-1].flags.update(
            strategy="default",
            num_train_steps=steps,
            num_shallow_steps=2 * steps // 3,
            num_warmup_steps=min(100, steps // 5),
            save_checkpoints_steps=steps // 3,
        )
        return chosen

    def killed(self) -> dict[str, Any]:
        """Pretrains again, kills the run after its first checkpoint and resumes it."""
        stage = self._demo_stages()[-1]
        folder = self.path("killed")
        command = dataclasses.replace(stage, flags={**stage.flags, "output_dir": folder})
        first = f"{folder}/checkpoints/ckpt-{FLAGS.demo_steps // 3}.index"
        process = self.start("killed", *command.arguments())
        while process.poll() is None and not os.path.exists(first):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise AlbertError("The run ended before it could be killed.")
        self.run("killed", *command.arguments())
        last = f"checkpoints/ckpt-{FLAGS.demo_steps}"
        difference = _difference(*(os.path.join(x, last) for x in (stage.folder, folder)))
        return {"largest_difference": difference, "bit_for_bit": difference == 0}

    def records(self) -> dict[str, Any]:
        """Builds records for the timed steps and the model's configuration."""
        vocabulary = os.path.join(FOLDER, DEFAULT, "spiece.model")
        self.run("records", "data_prep/create_pretraining_data.py", f"--input_file={UNREAD}",
                 f"--spm_model_file={vocabulary}", f"--output_dir={self.path('records')}",
                 f"--max_seq_length={LENGTH}", "--num_workers=2", on_cpu=True)  # fmt: skip
        config = dataclasses.replace(AlbertConfig.from_preset(FLAGS.config), vocab_size=8000)
        config.to_json(self.path("config.json"))
        return {"config": config.to_dict()}

    def step(self, precision: str, jit_compile: bool) -> dict[str, Any]:
        """Times the training step; returns its rate, the memory and the share of the peak."""
        name = f"step-{precision}-{'xla' if jit_compile else 'no-xla'}"
        with _memory() as used:
            self.run(name, "run_pretraining.py", "--do_train",
                     f"--input_file={self.path('records')}", f"--output_dir={self.path(name)}",
                     f"--albert_config_file={self.path('config.json')}",
                     f"--train_batch_size={FLAGS.rows}", f"--num_train_steps={FLAGS.steps}",
                     f"--log_every_steps={FLAGS.steps // 3}", f"--precision={precision}",
                     f"--jit_compile={str(jit_compile).lower()}")  # fmt: skip
        found = _last_metrics(self.path(name))
        config = AlbertConfig.load(self.path("config.json"))
        flops = training_flops(config, LENGTH, predictions_of(LENGTH))
        devices = self.results["devices"].get("devices") or [{}]
        peak = peak_flops(devices[0].get("device_name", ""))
        share = found["examples_per_second"] * flops / peak if peak else None
        return {**found, "gpu_mib": max(used, default=None), "peak_share": share}

    def classifier(self) -> dict[str, Any]:
        """Fine-tunes on authors; compares the probabilities with the CPU's."""
        # TensorFlow takes seconds to import; --help should not wait for it.
        from albert_tf.tasks.tables import read_predictions

        train, new = f"{AUTHORS}/train.tsv", f"{AUTHORS}/dev.tsv"
        self._fine_tune("classifier", "run_classifier.py", train, "--max_seq_length=80",
                        "--text_column=sentence", "--label_column=author")  # fmt: skip
        tables = self._predictions("classifier", "run_classifier.py", new, "predictions.tsv")
        gpu, cpu = (read_predictions(path).values for path in tables)
        difference = float(np.abs(gpu - cpu).max())
        same = float(np.mean(gpu.argmax(axis=1) == cpu.argmax(axis=1)))
        return {"passed": difference <= TOLERANCE, "difference": difference, "same_labels": same}

    def answerer(self) -> dict[str, Any]:
        """Fine-tunes for questions made of held-out sentences; compares the answers."""
        lines = [line for line in read_lines(UNREAD) if 5 < len(line.split()) < 30][:600]
        rows = []
        for number, (before, line, after) in enumerate(zip(lines, lines[1:], lines[2:])):
            *start, last = line.split()
            rows.append({"id": str(number), "question": f"{' '.join(start)} what ?",
                         "context": f"{before} {line} {after}", "answers": last})  # fmt: skip
        content = "".join(f"{json.dumps(row)}\n" for row in rows)
        files.write_text(self.path("questions.jsonl"), content)
        self._fine_tune("answerer", "run_squad.py", self.path("questions.jsonl"), "--version=1.1",
                        "--max_seq_length=128")  # fmt: skip
        given = ("answerer", "run_squad.py", self.path("questions.jsonl"), "predictions.json")
        gpu, cpu = map(files.read_json, self._predictions(*given))
        same = float(np.mean([gpu[name] == cpu[name] for name in cpu]))
        return {"passed": same > 0.95, "questions": len(cpu), "same_answers": same}

    def _fine_tune(self, name: str, program: str, train: str, *arguments: str) -> None:
        self.run(name, program, "--do_train", f"--train_file={train}", "--train_batch_size=16",
                 f"--output_dir={self.path(name)}", "--train_step=40", *arguments)  # fmt: skip

    def _predictions(self, name: str, program: str, new: str, file: str) -> Iterator[str]:
        """Predicts on the GPU and on the CPU; yields the paths of the predictions."""
        for device in ("gpu", "cpu"):
            folder = self.path(f"{name}-{device}")
            shutil.copytree(self.path(name), folder)
            self.run(f"{name}-{device}", program, "--do_predict", f"--predict_file={new}",
                     f"--output_dir={folder}", on_cpu=device == "cpu")  # fmt: skip
            yield os.path.join(folder, file)

    def exports(self) -> dict[str, Any]:
        """Exports the classifier, which loads the export and compares it, and asks it."""
        export = self.path("export")
        self.run("export", "export_tfhub.py", f"--albert_directory={self.path('classifier')}",
                 f"--export_path={export}")  # fmt: skip
        self.run("ask", "demo/ask.py", f"--saved_model={export}", f"--output_dir={self.folder}")
        return files.read_json(f"{export}/self_check.json")


@contextlib.contextmanager
def _memory() -> Iterator[list[int]]:
    """Notes the MiB in use on the first GPU every half second; nothing without nvidia-smi."""
    used, done = [], threading.Event()
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]

    def watch() -> None:
        while not done.wait(0.5):
            found = subprocess.run(query, capture_output=True, text=True)
            if found.stdout.strip().isdigit():
                used.append(int(found.stdout))

    thread = threading.Thread(target=watch)
    if shutil.which("nvidia-smi"):
        thread.start()
    try:
        yield used
    finally:
        done.set()
        if thread.ident:
            thread.join()


def _last_metrics(folder: str) -> dict[str, float]:
    """Returns figures of the last steps in a run's log."""
    from albert_tf.training.monitors import read_metrics
    from albert_tf.weights.run_folder import RunFolder

    entries = read_metrics(RunFolder(folder))
    last = [entry for entry in entries if entry["split"] == "train"][-1]
    names = ("step", "loss", "tokens_per_second", "examples_per_second", "skipped_steps")
    return {name: last[name] for name in names}


def _difference(first: str, second: str) -> float:
    """Returns the largest difference between numbers in two checkpoints."""
    import tensorflow as tf

    readers = [tf.train.load_checkpoint(path) for path in (first, second)]
    differences = [0.0]
    for name, dtype in readers[0].get_variable_to_dtype_map().items():
        if dtype.is_floating:
            a, b = (np.asarray(reader.get_tensor(name), np.float64) for reader in readers)
            differences.append(float(np.abs(a - b).max()))
    return max(differences)


def main() -> int:
    """Runs all parts; returns the exit status."""
    if os.path.exists(FLAGS.output_dir):
        raise AlbertError(f"{FLAGS.output_dir} exists; give a new folder.")
    os.makedirs(FLAGS.output_dir)
    check = GpuCheck(os.path.abspath(FLAGS.output_dir))
    check.part("devices", check.devices)
    check.part("records", check.records)
    for precision in PRECISIONS:
        for jit_compile in (True, False):
            name = f"step, {precision}, {'with' if jit_compile else 'without'} XLA"
            check.part(name, lambda p=precision, j=jit_compile: check.step(p, j))
    for name in ("classifier", "answerer", "exports", "demo", "killed"):
        check.part(name, getattr(check, name))
    return 1 - all(found.get("passed", True) for found in check.results.values())


if __name__ == "__main__":
    script.run(main, define_flags)
