# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A recipe as stages, each of which is one command of the project's scripts.

Folders are named by what is in them, not by the table, so that tables share what they have in
common: `text/`, `vocabulary/`, `records/`, `configs/`, `models/`, `evaluations/`, `fine_tuned/`,
`speed/`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from benchmarks.paper.corpus import HELD_OUT_FILE, TRAIN_FILE
from benchmarks.paper.recipes import Recipe, Row, shape_name, text_name
from benchmarks.paper.speed import SPEED_FILE
from demo.stages import RECORD_FILE, Stage

RESULTS_FILE = "eval_results.json"
_FIRST_SEED = 12345


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a run of the kit is given.

    Attributes:
      text: files for pretraining, one sentence per line; a comma list.
      output_dir: for everything.
      data_dir: holds glue/, squad/ and race/; None: nothing is fine-tuned.
      additional_text: more text, for the rows that are about it.
      check_data: leave tasks out whose data is not there.
    """

    text: str
    output_dir: str
    data_dir: str | None = None
    additional_text: str = ""
    check_data: bool = True


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a stage leaves a cell's values: the file, and the names in it."""

    folder: str
    file: str
    metrics: tuple[str, ...]


class Plan:
    """The stages of a recipe, and where its results will be.

    Args:
      recipe: the experiment.
      inputs: what there is.

    Attributes:
      stages: in order.
      rows: those with a model by name.
      configs: the models' configurations by the path that commands name.
      cells: of each row by column: a value, or the Source of one; none if it is not to be had.
      models: folder of each row's pretrained model.
      missing: why columns stay empty, by title.

    Raises:
      AlbertError: two commands would share a folder.
    """

    def __init__(self, recipe: Recipe, inputs: Inputs) -> None:
        self.recipe, self.inputs = recipe, inputs
        self.stages: list[Stage] = []
        self.configs: dict[str, AlbertConfig] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        self.models: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self._by_folder: dict[str, Stage] = {}
        self.rows = {row.name: row for row in recipe.rows if row.config}
        for row in self.rows.values():
            self.cells[row.name] = {
                name: cell
                for name, column in recipe.columns.items()
                if (cell := self._cell(row, name, column)) is not None
            }

    def _cell(self, row: Row, name: str, column: Mapping[str, Any]) -> Any:
        """The value of a column, or its Source; adds the stages that make it."""
        if "config" in column:
            return getattr(row.config, column["config"])
        if "evaluation" in column:
            folder = self._evaluation(row, column["evaluation"])
            return Source(folder, RESULTS_FILE, tuple(column["metrics"]))
        if "task" in column:
            folder = self._fine_tuning(row, column["task"], column["title"])
            results = self.recipe.tasks[column["task"]].get("results", RESULTS_FILE)
            return folder and Source(folder, results, tuple(column["metrics"]))
        if name == "parameters":
            return row.config.count_parameters()["encoder"]
        if name == "speedup":
            return Source(self._speed(row), SPEED_FILE, ("processor_seconds",))
        if name == "steps":
            return row.pretraining["num_train_steps"]
        if name == "hours":
            return Source(self._pretraining(row), RECORD_FILE, ("seconds",))
        return None

    def _add(
        self,
        kind: str,
        title: str,
        folder: str,
        script: str,
        flags: Mapping[str, Any],
        inputs: list[str],
    ) -> str:
        """Adds a stage unless it is there; gives its folder."""
        seconds = self.recipe.scale["seconds"].get(kind, 0)
        stage = Stage(title, folder, script, dict(flags), inputs, seconds)
        known = self._by_folder.setdefault(folder, stage)
        if known is stage:
            self.stages.append(stage)
        elif known.arguments() != stage.arguments():
            raise AlbertError(f"Two commands of {self.recipe.name} write into {folder}.")
        return folder

    def _path(self, *parts: str) -> str:
        return os.path.join(self.inputs.output_dir, *parts)

    def _text(self, text: Mapping[str, Any]) -> str:
        patterns = [self.inputs.text]
        if text.get("additional") and self.inputs.additional_text:
            patterns.append(self.inputs.additional_text)
        flags = {
            "input_file": ",".join(patterns),
            "output_dir": self._path("text", text_name(text)),
        }
        if "megabytes" in text:
            flags["megabytes"] = text["megabytes"]
        paths = [path for each in patterns for p in each.split(",") for path in tf.io.gfile.glob(p)]
        return self._add(
            "text",
            f"Split the text ({text_name(text)}) into training and held-out documents",
            flags["output_dir"],
            "-m benchmarks.paper corpus",
            flags,
            paths,
        )

    def _vocabulary(self) -> tuple[str, list[str]]:
        """The SentencePiece model that all rows use, and the inputs of the stages that read it.

        It is a model's, if the scale names one, or trained on the text that most rows read.
        """
        settings = self.recipe.scale["vocabulary"]
        if "model" in settings:
            return settings["model"], []
        text = self._text(self.recipe.scale["row"]["text"])
        folder = self._path("vocabulary")
        flags = {
            "input_file": os.path.join(text, TRAIN_FILE),
            "output_prefix": os.path.join(folder, "spm"),
            "overwrite": True,
            **settings,
        }
        script = "data_prep/train_sentencepiece.py"
        self._add("vocabulary", "Train a vocabulary", folder, script, flags, [_record(text)])
        return os.path.join(folder, "spm.model"), [_record(folder)]

    def _records(self, part: str, kind: str, text: Mapping[str, Any]) -> str:
        """Records of one part, train or heldout, of a text.

        Args:
          part: see above.
          kind: as of Row.evaluation: the sentence objective, and -whole for whole sentences.
          text: as of Row.
        """
        vocabulary, inputs = self._vocabulary()
        source = self._text(text)
        folder = self._path("records", f"{text_name(text)}-{part}-{kind}")
        file = {"train": TRAIN_FILE, "heldout": HELD_OUT_FILE}[part]
        objective, _, whole = kind.partition("-")
        flags = {
            "input_file": os.path.join(source, file),
            "output_dir": folder,
            "spm_model_file": vocabulary,
            "sentence_objective": objective,
            "dupe_factor": self.recipe.scale["dupe_factors"][part],
            **self.recipe.scale["records"],
            **({"whole_sentences": True, "short_seq_prob": 0} if whole else {}),
        }
        return self._add(
            "records",
            f"Build {part} records, sentence objective {kind}",
            folder,
            "data_prep/create_pretraining_data.py",
            flags,
            [_record(source), *inputs],
        )

    def _held_out(self, kind: str) -> str:
        """Held-out records, the same ones for all rows."""
        return self._records("heldout", kind, self.recipe.scale["row"]["text"])

    def _config(self, config: AlbertConfig) -> str:
        path = self._path("configs", f"{shape_name(config)}.json")
        self.configs[path] = config
        return path

    def _pretraining(self, row: Row) -> str:
        train = self._records("train", row.evaluation(), row.text)
        held_out = self._held_out(_evaluated_while_training(row))
        config = self._config(row.config)
        folder = self._path("models", row.model_name())
        flags = {
            "do_train": True,
            "do_eval": True,
            "input_file": train,
            "eval_input_file": held_out,
            "albert_config_file": config,
            "output_dir": folder,
            **row.pretraining,
        }
        self.models[row.name] = folder
        return self._add(
            "pretraining",
            f"Pretrain {row.model_name()}",
            folder,
            "run_pretraining.py",
            flags,
            [config, _record(train), _record(held_out)],
        )

    def _evaluation(self, row: Row, kind: str) -> str:
        """The folder of a model's results on records of a kind."""
        model = self._pretraining(row)
        if kind == _evaluated_while_training(row):
            return model
        held_out = self._held_out(kind)
        folder = self._path("evaluations", row.model_name(), f"heldout-{kind}")
        flags = {
            "nodo_train": True,
            "do_eval": True,
            "input_file": self._records("train", row.evaluation(), row.text),
            "eval_input_file": held_out,
            "albert_config_file": self._config(row.config),
            "init_checkpoint": model,
            "output_dir": folder,
        }
        for name in ("precision", "strategy", "eval_batch_size"):
            if name in row.pretraining:
                flags[name] = row.pretraining[name]
        title = f"Evaluate {row.model_name()} on held-out records, {kind}"
        inputs = [_record(model), _record(held_out)]
        return self._add("evaluation", title, folder, "run_pretraining.py", flags, inputs)

    def _speed(self, row: Row) -> str:
        config = self._config(row.config)
        speed = self.recipe.scale["speed"]
        name = f"{shape_name(row.config)}-{speed['batch_size']}x{speed['seq_length']}"
        folder = self._path("speed", name)
        flags = {"albert_config_file": config, "output_dir": folder, **speed}
        title = f"Measure the training step of {shape_name(row.config)}"
        return self._add("speed", title, folder, "-m benchmarks.paper speed", flags, [config])

    def _fine_tuning(self, row: Row, task_name: str, title: str) -> str | None:
        """The folder of a fine-tuned model; None if there is no data, or not at this scale."""
        task, own = self.recipe.tasks[task_name], self.recipe.scale["fine_tuning"]
        if task_name not in own:
            self.missing[title] = "not run at this scale"
            return None
        if self.inputs.data_dir is None:
            self.missing[title] = "no --data_dir was given"
            return None
        data = self._task_data(task_name, task)
        absent = [path for path in data.pop("needed") if not tf.io.gfile.exists(path)]
        if absent and self.inputs.check_data:
            self.missing[title] = f"no {os.path.relpath(absent[0], self.inputs.data_dir)}"
            return None
        model, name = self._pretraining(row), row.model_name()
        checkpoint, inputs = model, [_record(model)]
        if row.checkpoint:
            name += f"-at{row.checkpoint}"
            checkpoint = os.path.join(model, "checkpoints", f"ckpt-{row.checkpoint}")
        # Texts may be longer than what was pretrained on; positions are repeated then.
        positions = max(row.config.max_position_embeddings, own[task_name].get("max_seq_length", 0))
        config = dataclasses.replace(row.config, max_position_embeddings=positions)
        start = {
            "init_checkpoint": checkpoint,
            "albert_config_file": self._config(config),
            "spm_model_file": self._vocabulary()[0],
        }
        former = task.get("from")
        before = self._fine_tuning(row, former, former.upper()) if former else None
        if before:
            seeds = "num_seeds" in own[former]
            best = os.path.join(before, f"seed-{_FIRST_SEED}") if seeds else before
            start, inputs = {"init_checkpoint": best}, [_record(before)]
        folder = self._path("fine_tuned", name, task_name)
        flags = {
            "do_train": True,
            "do_eval": True,
            **data,
            **task.get("flags", {}),
            **start,
            "output_dir": folder,
            **own[task_name],
        }
        title = f"Fine-tune {name} on {task_name}"
        return self._add("fine_tuning", title, folder, task["script"], flags, inputs)

    def _task_data(self, task_name: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Flags that name a task's data; `needed` are the paths that have to be there."""
        root = self.inputs.data_dir
        if "glue" in task:
            folder = os.path.join(root, "glue")
            flags = {"task_name": task_name, "data_dir": folder, "do_predict": True}
            return {**flags, "needed": [os.path.join(folder, task["glue"])]}
        flags = {name: os.path.join(root, path) for name, path in task["data"].items()}
        reads = [os.path.join(root, path) for path in task.get("reads", ())]
        return {**flags, "needed": [*flags.values(), *reads]}


def _evaluated_while_training(row: Row) -> str:
    """The kind of the held-out records that select a row's best weights."""
    return "sop-whole" if row.whole_sentences else "sop"


def _record(folder: str) -> str:
    return os.path.join(folder, RECORD_FILE)
