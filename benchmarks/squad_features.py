# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How fast SQuAD questions become windows and records, and outputs answers and scores.

  python -m benchmarks.squad_features --file=dev-v1.1.json --spm_model_file=30k-clean.model

Prints a table; --json writes it too. The times of one process are processor time, so that other
load on the machine does not count; those of several workers are wall time. Alignment is compared
with the TF1 release (google-research/albert squad_utils.convert_examples_to_features), which takes
25 ms a question, measured once on one core of a similar machine.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from albert_tf import cli, files
from albert_tf.tasks.squad.answers import extract_answers, predictions
from albert_tf.tasks.squad.data import VERSIONS, read_squad
from albert_tf.tasks.squad.features import build_squad_records
from albert_tf.tasks.squad.scoring import score
from albert_tf.tasks.squad.windows import WindowOptions, Windows, make_windows
from albert_tf.tokenization import Tokenizer

#: Milliseconds a question of the official conversion, for a context of 735 characters.
OFFICIAL_MILLISECONDS = 25.0
TOP = 20

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("file", None, "SQuAD file with answers.", required=True)
    flags.DEFINE_enum("version", "1.1", VERSIONS, "Version of SQuAD.")
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_integer("workers", 0, "Measure windows with so many processes too.")
    flags.DEFINE_string("json", None, "File to write the figures to.")


def random_outputs(windows: Windows) -> dict[str, np.ndarray]:
    """What a span head might give: random scores, and positions anywhere in the sequence."""
    rng = np.random.default_rng(0)
    lengths = (windows.context_start + windows.num_pieces + 1)[:, None]
    shape = (len(windows), TOP)
    outputs = {"null_logit": rng.normal(size=len(windows))}
    for side in ("start", "end"):
        outputs[f"{side}_top_index"] = rng.integers(0, lengths, shape)
        outputs[f"{side}_top_logits"] = rng.normal(size=shape)
    return outputs


def measure() -> dict[str, Any]:
    """Takes the questions all the way and returns the figures."""
    seconds: dict[str, float] = {}

    def timed(step: str, function: Callable[[], Any], clock: Callable[[], float]) -> Any:
        began = clock()
        result = function()
        seconds[step] = clock() - began
        return result

    def alone(step: str, function: Callable[[], Any]) -> Any:
        return timed(step, function, time.process_time)

    version, options = FLAGS.version, WindowOptions()
    tokenizer = Tokenizer.from_file(FLAGS.spm_model_file)
    questions = alone("read", lambda: read_squad(FLAGS.file, version=version))
    windows = alone("align and cut", lambda: make_windows(questions, tokenizer, options))
    if FLAGS.workers:
        timed(
            f"the same, {FLAGS.workers} workers",
            lambda: make_windows(questions, tokenizer, options, workers=FLAGS.workers),
            time.perf_counter,
        )
    with tempfile.TemporaryDirectory() as folder:
        given = {"version": version, "labelled": True}
        path = alone(
            "records, all in all",
            lambda: build_squad_records(folder, questions, tokenizer, options, **given),
        )
        size = os.path.getsize(path)
    outputs = random_outputs(windows)
    found = alone(
        "answers from outputs",
        lambda: extract_answers(
            windows, outputs, head="span", n_best_size=TOP, max_answer_length=30
        ),
    )
    alone("scores", lambda: score(questions, predictions(found, None), version=version))
    milliseconds = {step: 1000 * value / len(questions) for step, value in seconds.items()}
    return {
        "benchmark": "squad_features",
        "questions": len(questions),
        "windows": len(windows),
        "record_megabytes": round(size / 1e6, 2),
        "milliseconds_per_question": {step: round(v, 4) for step, v in milliseconds.items()},
        "alignment_times_official": round(OFFICIAL_MILLISECONDS / milliseconds["align and cut"], 1),
    }


def _main() -> None:
    # Loaded beforehand, so that its start counts nowhere.
    import tensorflow as tf

    tf.zeros(())
    result = measure()
    print(f"{result['questions']:,} questions, {result['windows']:,} windows")
    for step, value in result["milliseconds_per_question"].items():
        print(f"  {step:22} {value:8.4f} ms a question  {1000 / value:10,.0f} a second")
    print(f"Aligning is {result['alignment_times_official']:.0f} times as fast as the release.")
    if FLAGS.json:
        files.write_json(FLAGS.json, result)


def main() -> None:
    """Entry point."""
    cli.run(_main, define_flags)


if __name__ == "__main__":
    main()
