# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How long the steps of SQuAD around the model take, from text to records and to scores."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from albert_tf.tasks.squad.answers import extract_answers, predictions
from albert_tf.tasks.squad.data import read_squad
from albert_tf.tasks.squad.features import SquadSpec, build_squad_records
from albert_tf.tasks.squad.scoring import score
from albert_tf.tasks.squad.windows import Windows, make_windows
from albert_tf.tokenization.tokenizer import Tokenizer

#: Milliseconds a question of google-research/albert squad_utils.convert_examples_to_features, for
#: contexts of 735 characters; measured once, on one core of a similar machine.
OFFICIAL_MILLISECONDS = 25.0
TOP = 20

FLAGS = flags.FLAGS


def measure_features(folder: str) -> dict[str, Any]:
    """Takes SQuAD's questions from text to records, and outputs to answers and scores.

    The times of one process are processor time, so that other load on the machine does not count;
    those of several workers are wall time.
    """
    seconds: dict[str, float] = {}

    def timed(
        step: str, function: Callable[[], Any], clock: Callable[[], float] = time.process_time
    ) -> Any:
        began = clock()
        result = function()
        seconds[step] = clock() - began
        return result

    spec = SquadSpec("1.1", n_best_size=TOP, max_seq_length=FLAGS.squad_length)
    tokenizer = Tokenizer.from_file(FLAGS.spm_model_file)
    questions = timed("read", lambda: read_squad(FLAGS.squad_file, version="1.1"))
    windows = timed("align and cut", lambda: make_windows(questions, tokenizer, spec.windows))
    if FLAGS.workers:
        timed(
            f"the same, {FLAGS.workers} workers",
            lambda: make_windows(questions, tokenizer, spec.windows, workers=FLAGS.workers),
            time.perf_counter,
        )
    timed(
        "records, all in all",
        lambda: build_squad_records(folder, questions, tokenizer, spec, labelled=True),
    )
    outputs = _random_outputs(windows)
    found = timed("answers from outputs", lambda: extract_answers(windows, outputs, spec))
    timed("scores", lambda: score(questions, predictions(found, None), version="1.1"))
    milliseconds = {step: 1000 * value / len(questions) for step, value in seconds.items()}
    official = OFFICIAL_MILLISECONDS / milliseconds["align and cut"]
    return {
        "questions": len(questions),
        "windows": len(windows),
        "milliseconds_per_question": {step: round(v, 4) for step, v in milliseconds.items()},
        "alignment_times_official": round(official, 1),
    }


def _random_outputs(windows: Windows) -> dict[str, np.ndarray]:
    """What a span head might give: random scores, and positions anywhere in the sequence."""
    rng = np.random.default_rng(0)
    lengths = (windows.context_start + windows.num_pieces + 1)[:, None]
    shape = (len(windows), TOP)
    return {
        "starts": rng.integers(0, lengths, shape),
        "start_scores": rng.normal(size=shape),
        "ends": rng.integers(0, lengths, shape)[:, None],
        "end_scores": rng.normal(size=shape)[:, None],
        "null_logit": rng.normal(size=len(windows)),
    }
