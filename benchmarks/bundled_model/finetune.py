# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a bundled model, and the same model from random weights, with several seeds each.

Settings come from the recipes for small models. Steps, sequence lengths and batch sizes are smaller
to suit two cores: one epoch of SST-2 and RACE, two of SQuAD, three to five of the others. Both
starting points use the same settings; the best evaluation of a run counts.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Mapping
from typing import Any

from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained import DEFAULT, FOLDER, NONE
from albert_tf.tasks.fine_tune_config import RECIPES
from benchmarks.common import describe_machine, markdown
from demo.stages import Stage, run_stages

FLAGS = flags.FLAGS
RESULTS_FILE = "finetune.json"
PRETRAINED, RANDOM = STARTS = ("pretrained", "random")
#: What decides the results of each in the model's folder.
_SHAPE = ("config.json", "spiece.model")
_READS = {PRETRAINED: ("model.safetensors", *_SHAPE), RANDOM: _SHAPE}


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A task and how the model is fine-tuned on it.

    Attributes:
      title: for the table.
      metric: likewise, of the development set.
      script: what fine-tunes.
      flags: of the script, with {data} for the folder with the data.
      reads: globs below the data's folder; where there is none of one, the task is refused.
      constant: the entry of eval_results.json that a constant answer reaches; None: 0.
      seconds: of one training run, for the time left.
    """

    title: str
    metric: str
    script: str
    flags: dict[str, object]
    reads: tuple[str, ...]
    constant: str | None
    seconds: int


def _glue(name: str, metric: str, constant: str | None, steps: int, length: int) -> Benchmark:
    settings = {
        "task_name": name.lower(),
        "data_dir": "{data}/glue",
        "train_step": steps,
        "eval_every_steps": steps // 4,
        "max_seq_length": length,
    }
    reads = (f"glue/{name}/train.tsv", f"glue/{name}/dev.tsv")
    seconds = steps * length // 800
    return Benchmark(name, metric, "run_classifier.py", settings, reads, constant, seconds)


BENCHMARKS = {
    "sst-2": _glue("SST-2", "accuracy", "majority_accuracy", 2100, 64),
    "cola": _glue("CoLA", "Matthews correlation", None, 1600, 48),
    "rte": _glue("RTE", "accuracy", "majority_accuracy", 400, 128),
    "sts-b": _glue("STS-B", "Pearson correlation", None, 1440, 80),
    "squad1.1": Benchmark(
        "SQuAD 1.1",
        "F1",
        "run_squad.py",
        {
            "version": "1.1",
            "train_file": "{data}/squad/train_parts/train-v1.1*.json",
            "eval_file": "{data}/squad/dev-v1.1.json",
            "max_seq_length": 192,
            "doc_stride": 96,
            "train_batch_size": 24,
            "num_train_epochs": 2,
        },
        ("squad/train_parts/train-v1.1*.json", "squad/dev-v1.1.json"),
        None,
        850,
    ),
    "race": Benchmark(
        "RACE",
        "accuracy",
        "run_race.py",
        {
            "data_dir": "{data}/race",
            "max_seq_length": 96,
            "train_batch_size": 16,
            "num_train_epochs": 1,
        },
        ("race/train", "race/dev"),
        "chance_accuracy",
        300,
    ),
}


def define_flags() -> None:
    """Flags of `finetune`."""
    flags.DEFINE_string("name", DEFAULT, "The name of the bundled model.")
    define_path(
        "data_dir", None, "Folder with glue/ (CoLA, RTE, SST-2, STS-B), squad/ (dev-v1.1.json, "
        "train_parts/train-v1.1….json: all of the training set, or a part) and race/ (train, dev).",
        required=True
    )  # fmt: skip
    define_path(
        "output_dir", None, f"Folder for the runs and {RESULTS_FILE}; what is finished there is "
        "reused, what was interrupted goes on.", required=True
    )  # fmt: skip
    flags.DEFINE_list(
        "tasks", list(BENCHMARKS), f"Of {', '.join(BENCHMARKS)}; {RESULTS_FILE} holds these."
    )
    flags.DEFINE_multi_enum(
        "start", list(STARTS), list(STARTS), "What to fine-tune from; given twice: both."
    )
    flags.DEFINE_integer("num_seeds", 3, "Runs from each start; the median counts.", 2)


def stages(
    tasks: list[str],
    starts: list[str],
    data_dir: str,
    output_dir: str,
    num_seeds: int,
    model: str = DEFAULT,
) -> dict[tuple[str, str], Stage]:
    """A stage for each task and start (of BENCHMARKS and of STARTS).

    Raises:
      AlbertError: a task is unknown, or its data is not there.
    """
    result = {}
    for name in tasks:
        if name not in BENCHMARKS:
            raise AlbertError(f"There is no task {name!r}; there are {', '.join(BENCHMARKS)}.")
        task = BENCHMARKS[name]
        found = [
            files.expand_globs(f"{data_dir}/{path}", "data of the task") for path in task.reads
        ]
        given = {
            key: value.format(data=data_dir) if isinstance(value, str) else value
            for key, value in task.flags.items()
        }
        if "train_file" in given:
            given["train_file"] = found[0][0]
        for start in starts:
            folder = f"{output_dir}/{name}/{start}"
            run = {
                "do_train": True,
                "do_eval": True,
                **given,
                **_start_flags(start, model),
                "num_seeds": num_seeds,
                "output_dir": folder,
            }
            # Not RACE's folders of thousands of files, whose changes the run itself finds.
            inputs = [path for paths in found for path in paths if os.path.isfile(path)]
            inputs += [os.path.join(RECIPES, f"{name}.json"), *model_files(start, model)]
            title = f"Fine-tune on {task.title} from {start} weights, {num_seeds} seeds"
            seconds = task.seconds * num_seeds
            result[name, start] = Stage(title, folder, task.script, run, inputs, seconds)
    return result


def _start_flags(start: str, model: str) -> dict[str, str]:
    """The flags of a script that name the initial weights."""
    if start == PRETRAINED:
        return {"init_checkpoint": model}
    if model == DEFAULT:  # The scripts take its shape and vocabulary by default.
        return {"init_checkpoint": NONE}
    shape = f"albert_tf/pretrained/{model}/config.json"
    return {"init_checkpoint": NONE, "albert_config_file": shape, "spm_model_file": model}


def model_files(start: str, model: str = DEFAULT) -> list[str]:
    """The files of a bundled model that runs from this start depend on."""
    return [os.path.join(FOLDER, model, name) for name in _READS[start]]


def collect(
    runs: Mapping[tuple[str, str], Stage],
) -> dict[str, dict[str, Any]]:
    """The scores of finished runs: what RESULTS_FILE holds.

    Args:
      runs: as of `stages`, all finished.

    Returns:
      By task its `metric`, `constant_answer` (the metric of one) and, by start, `seeds` (a score
      each) with their `median`, `command` and `machine`.

    Raises:
      AlbertError: a file of a run is missing.
    """
    found: dict[str, dict[str, Any]] = {}
    for (name, start), stage in runs.items():
        values = list(files.read_json(f"{stage.folder}/seeds.json")["values"].values())
        scores = found.setdefault(name, {"metric": BENCHMARKS[name].metric})
        scores[start] = {
            "median": statistics.median(values),
            "seeds": values,
            "command": stage.command(),
            "machine": describe_machine(),
        }
        constant = BENCHMARKS[name].constant
        results = files.read_json(f"{stage.folder}/eval_results.json")
        scores["constant_answer"] = results[constant] if constant else 0.0
    return found


def table(scores: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Rows of text: head, then a row a task; median (lowest to highest), or – for no runs."""
    rows = [["task (dev)", "metric", *(f"{start} weights" for start in STARTS), "constant answer"]]
    for name, found in scores.items():
        # SQuAD's scores are percentages.
        show = "{:.2f}".format if name.startswith("squad") else "{:.3f}".format
        cells = [
            f"{show(found[start]['median'])} ({show(min(found[start]['seeds']))} to "
            f"{show(max(found[start]['seeds']))})"
            if start in found
            else "–"
            for start in STARTS
        ]
        task = BENCHMARKS[name]
        rows.append([task.title, found["metric"], *cells, show(found["constant_answer"])])
    return rows


def main() -> None:
    """Runs the command."""
    data_dir, output_dir = FLAGS.data_dir.rstrip("/"), FLAGS.output_dir.rstrip("/")
    model = FLAGS.name
    todo = stages(FLAGS.tasks, FLAGS.start, data_dir, output_dir, FLAGS.num_seeds, model)
    run_stages(list(todo.values()))
    found = collect(todo)
    for scores in found.values():
        for start in FLAGS.start:
            # Published commands contain no local paths.
            command = scores[start]["command"].replace(output_dir, "runs/finetune")
            scores[start]["command"] = command.replace(data_dir, "data")
    path = os.path.join(output_dir, RESULTS_FILE)
    files.write_json(path, found)
    print(markdown(table(found)))
    print(f"Written to {path}.")
