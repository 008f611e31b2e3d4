# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts a model to another format, and reads the result back.

Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import functools
import os
import warnings
from typing import TYPE_CHECKING

from albert_tf.errors import AlbertError
from albert_tf.huggingface.config import HEADS, head_values
from albert_tf.io import files, folders
from albert_tf.io.log import log
from albert_tf.pretrained.locate import locate
from albert_tf.weights.run_folder import RESULTS_FILE, RunFolder, find_task, model_folder
from albert_tf.weights.thresholds import load_thresholds

if TYPE_CHECKING:
    from albert_tf.weights.load import LoadReport

FORMATS = ("tf2", "tf1", "hf")


def convert(
    from_path: str, to: str, output_dir: str, allow_partial: bool = False, overwrite: bool = False
) -> LoadReport:
    """Writes the model at `from_path` to a new folder, and compares the result bit by bit.

    Args:
      from_path: see albert_tf.weights.load.open_source.
      to: one of FORMATS.
      output_dir: a folder that does not exist yet, or is empty; it appears only when complete.
      allow_partial: see load_pretrained; only the weights of the source that pretrained models have
        are written. Otherwise a fine-tuned model is written with its head in the format "hf".
      overwrite: replace a model of the same format in `output_dir`; see folders.new_folder.

    Returns:
      Which weights were written, and which the source lacks or has besides.

    Raises:
      AlbertError: the source cannot be loaded, the format cannot represent the model, or the folder
        is not empty.
    """
    from albert_tf.huggingface.weights import write_hugging_face
    from albert_tf.weights.checkpoint import write_tf1, write_tf2
    from albert_tf.weights.load import POOLER, open_source, read_finite
    from albert_tf.weights.pretrained_model import load_pretrained

    results = os.path.join(from_path, RESULTS_FILE)
    metrics = files.read_object(results) if files.exists(results) else {}
    from_path = model_folder(locate(from_path))
    task = find_task(from_path) if to == "hf" and not allow_partial else {}
    if task:
        head_values(task)  # Refuses a head that Hugging Face's code does not have.
    write = dict(zip(FORMATS, (write_tf2, write_tf1, write_hugging_face)))[to]
    with folders.new_folder(output_dir, overwrite, from_path) as folder:
        with warnings.catch_warnings():  # The report lists these weights.
            warnings.filterwarnings("ignore", ".* was loaded in part")
            model = load_pretrained(from_path, allow_partial or bool(task))
        if model.tokenizer is None:
            log.info(
                f"There is no vocabulary beside {from_path}, so the result has none: put it "
                "there and convert again, or give a vocabulary wherever you use the result."
            )
        variables = model.named_weights()
        report = model.load_report
        weights = {name: variables[name].numpy() for name in report.matched}
        if task:
            source = open_source(from_path)
            weights |= {name: read_finite(source, name) for name in report.unexpected}
            if thresholds := load_thresholds(RunFolder(from_path)):
                task["thresholds"] = thresholds
                metrics |= {f"threshold of {name}": x for name, x in thresholds.items()}
            if not HEADS[task["task"]].has_pooler:
                weights = {name: value for name, value in weights.items() if name not in POOLER}
            if "deviation" in task:  # Their models answer in the unit of the labels.
                weights["output_weights"] = weights["output_weights"] * task["deviation"]
                weights["output_bias"] = weights["output_bias"] * task["deviation"] + task["mean"]
                task |= {"mean": 0.0, "deviation": 1.0}
            write = functools.partial(write, task=task, metrics=metrics)
            report = report._replace(matched=(*weights,), missing=(), unexpected=())
        write(folder, model.config, model.tokenizer, weights)
        written = open_source(folder)
        wrong = {*written.shapes} ^ {*weights}
        for name in {*weights} - wrong:
            value, expected = written.read(name), weights[name]
            if value.dtype != expected.dtype or value.tobytes() != expected.tobytes():
                wrong.add(name)
        if wrong:
            raise AlbertError(
                f"The result in {os.path.dirname(folder)} differs from the source in "
                f"{', '.join(sorted(wrong))}; the disk may be full or damaged."
            )
    return report
