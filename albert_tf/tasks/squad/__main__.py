# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores, inspects and averages predictions for SQuAD.

  python -m albert_tf.tasks.squad score DATA.json PREDICTIONS.json --version=1.1
  python -m albert_tf.tasks.squad inspect --file=train-v1.1.json --version=1.1 \\
      --spm_model_file=30k-clean.model
  python -m albert_tf.tasks.squad ensemble --file=dev-v2.0.json --version=2.0 \\
      --run_dirs=runs/a,runs/b --output_dir=runs/ensemble

`score` prints a JSON object with the names and values of the official evaluation scripts. `inspect`
prints a JSON object with the numbers of questions, paragraphs, pieces and windows in a SQuAD file,
and the share of answers that can be read off their pieces. `ensemble` averages the answers of
several runs of run_squad.py to the same questions, and writes and scores them as run_squad.py does.
"""

from __future__ import annotations

import functools
import json

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import check_squad_file, define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained.locate import VOCABULARY, check_vocabulary
from albert_tf.tasks import ensemble_flags
from albert_tf.tasks.squad.data import VERSIONS, Question, answer_span, read_squad
from albert_tf.tasks.squad.scoring import normalize_answer, score
from albert_tf.tasks.squad.thresholds import check_threshold
from albert_tf.tasks.squad.windows import WindowOptions, Windows, make_windows
from albert_tf.tokenization.tokenizer import Tokenizer

FLAGS = flags.FLAGS
check_null_odds = functools.partial(files.check_file, what="null odds file")


def _define_version() -> None:
    flags.DEFINE_enum(
        "version", None, VERSIONS, "Version of SQuAD; 2.0 has unanswerable questions.",
        required=True,
    )  # fmt: skip


def define_score_flags() -> None:
    """Defines the flags of `score`."""
    _define_version()
    define_path(
        "null_odds", None, "2.0: JSON file with a number for each question, the larger the more "
        "likely it is unanswerable. Adds the best thresholds to the scores.", check=check_null_odds
    )  # fmt: skip
    flags.DEFINE_float(
        "na_prob_thresh", 1.0, "2.0, with --null_odds: questions whose null odds are above it "
        "count as unanswered. The default is that of the official script, for odds that are "
        "probabilities.",
    )  # fmt: skip


def define_inspect_flags() -> None:
    """Defines the flags of `inspect`."""
    options = WindowOptions()
    _define_version()
    define_path("file", None, "The SQuAD file.", required=True, check=check_squad_file)
    define_path(
        "spm_model_file", None, f"{VOCABULARY}.",
        required=True, check=check_vocabulary,
    )  # fmt: skip
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text.")
    flags.DEFINE_integer(
        "max_seq_length",
        options.max_seq_length,
        "Maximum length of question and window together, in tokens.",
    )
    flags.DEFINE_integer(
        "doc_stride", options.doc_stride, "Tokens between the starts of consecutive windows."
    )
    flags.DEFINE_integer(
        "max_query_length", options.max_query_length, "Maximum question length in tokens."
    )


def define_ensemble_flags() -> None:
    """Defines the flags of `ensemble`."""
    _define_version()
    define_path(
        "file", None, "The questions, in SQuAD's JSON layout.", required=True,
        check=check_squad_file,
    )  # fmt: skip
    ensemble_flags.define_ensemble_flags("run_squad.py")
    flags.DEFINE_float(
        "null_score_diff_threshold", None, "Mean null odds above which a question of 2.0 counts as "
        "unanswerable. Default: the value with the best F1 on --file, if it has answers."
    )  # fmt: skip


def score_command(data: str, predictions: str) -> None:
    """Prints the scores of a prediction file."""
    if FLAGS.null_odds and FLAGS.version == "1.1":
        raise AlbertError(
            "--null_odds is for --version=2.0; in SQuAD 1.1 every question has an answer."
        )
    if FLAGS["na_prob_thresh"].present and not FLAGS.null_odds:
        raise AlbertError("--na_prob_thresh is a threshold on --null_odds, which is not given.")
    scores = score(
        read_squad(data, version=FLAGS.version),
        files.read_object(predictions, "prediction file"),
        version=FLAGS.version,
        null_odds=files.read_object(FLAGS.null_odds, "null odds file") if FLAGS.null_odds else None,
        na_prob_thresh=FLAGS.na_prob_thresh,
    )
    print(json.dumps(scores, indent=2))


def inspect_command() -> None:
    """Prints figures about a SQuAD file."""
    questions = read_squad(FLAGS.file, version=FLAGS.version)
    lower_case = FLAGS.do_lower_case if FLAGS["do_lower_case"].present else None
    tokenizer = Tokenizer.from_file(FLAGS.spm_model_file, lower_case)
    options = WindowOptions(FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length)
    print(json.dumps(describe(questions, make_windows(questions, tokenizer, options)), indent=2))


def ensemble_command() -> None:
    """Averages the answers of several runs."""
    from albert_tf.tasks.squad import answer_files
    from albert_tf.tasks.squad.ensemble import ensemble
    from albert_tf.weights.run_folder import RESULTS_FILE

    check_threshold(FLAGS.version, FLAGS.null_score_diff_threshold)
    run_dirs = ensemble_flags.member_dirs()
    with ensemble_flags.claimed_output_dir([*answer_files.FILES, RESULTS_FILE]):
        path = ensemble(
            read_squad(FLAGS.file, version=FLAGS.version),
            run_dirs,
            FLAGS.output_dir,
            version=FLAGS.version,
            threshold=FLAGS.null_score_diff_threshold,
        )
    print(f"The mean answers of {len(run_dirs)} runs are in {path}.")


def describe(questions: list[Question], windows: Windows) -> dict[str, object]:
    """Counts questions, pieces and windows; lengths are in pieces, of paragraphs without specials.

    `aligned_answers` is the share of gold answers contained in the text of their pieces, after the
    official normalization; `exact_answers` the share of those equal to that text.
    """
    _, first_windows = np.unique(windows.question_index, return_index=True)
    paragraphs = [windows.paragraph(window) for window in first_windows]
    lengths = {q.context: len(paragraph.ids) for q, paragraph in zip(questions, paragraphs)}
    contained, exact = [], []
    for question, paragraph in zip(questions, paragraphs):
        for answer in question.answers:
            first, last = paragraph.pieces_of(*answer_span(question, answer))
            text = question.context[paragraph.starts[first] : paragraph.ends[last]]
            wanted, found = normalize_answer(answer.text), normalize_answer(text)
            contained.append(wanted in found)
            exact.append(wanted == found)
    return {
        "questions": len(questions),
        "unanswerable": sum(question.is_impossible for question in questions),
        "paragraphs": len(lengths),
        "mean_paragraph_length": round(float(np.mean(list(lengths.values()))), 1),
        "longest_paragraph": max(lengths.values()),
        "mean_question_length": round(float(np.mean([len(q) for q in windows.query_ids])), 1),
        "windows": len(windows),
        "mean_window_length": round(float(np.mean(windows.context_start + windows.num_pieces)), 1),
        "answers": len(exact),
        "aligned_answers": float(np.mean(contained)) if contained else None,
        "exact_answers": float(np.mean(exact)) if exact else None,
    }


COMMANDS = {
    "score": (score_command, define_score_flags, ("DATA.json", "PREDICTIONS.json")),
    "inspect": (inspect_command, define_inspect_flags),
    "ensemble": (ensemble_command, define_ensemble_flags),
}


def main() -> None:
    """Entry point."""
    script.run_command(COMMANDS, __doc__)


if __name__ == "__main__":
    main()
