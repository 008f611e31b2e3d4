# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Averages the predictions of several multiple-choice models.

  python -m albert_tf.tasks.multiple_choice ensemble --data_dir=RACE \\
      --run_dirs=runs/race,runs/race2 --output_dir=runs/ensemble

The runs have predicted the same questions with run_race.py --do_predict: the test split of
--data_dir, or --predict_file. Writes predictions.tsv with the mean probabilities of the options
and, if all questions are labelled, predict_results.json, as run_race.py does.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.text_files import check_text_file
from albert_tf.tasks import ensemble_flags

FLAGS = flags.FLAGS


def define_ensemble_flags() -> None:
    """Defines the flags of `ensemble`."""
    ensemble_flags.define_ensemble_flags("run_race.py")
    text = "The folder of RACE, whose test split was predicted."
    define_path("data_dir", None, text, check=files.check_folder)
    text = "The .jsonl file of the questions, instead of --data_dir."
    define_path("predict_file", None, text, check=check_text_file)
    flags.DEFINE_integer("num_choices", 4, "Options per question.", 2, 26)


def ensemble() -> None:
    """Writes the mean of several runs' predictions."""
    from albert_tf.tasks.multiple_choice import data, predictions

    if bool(FLAGS.data_dir) == bool(FLAGS.predict_file):
        raise AlbertError(
            "Give the questions: --data_dir (for RACE's test split) or --predict_file."
        )
    run_dirs = ensemble_flags.member_dirs()
    if FLAGS.predict_file:
        examples = data.read_questions(FLAGS.predict_file, FLAGS.num_choices)
    else:
        examples = data.read_race(FLAGS.data_dir, "test", num_choices=FLAGS.num_choices)
    with ensemble_flags.claimed_output_dir(predictions.FILES):
        mean = predictions.average_predictions(examples, run_dirs)
        predictions.write_outputs(examples, mean, FLAGS.output_dir)
    print(f"They are the mean of {len(run_dirs)} runs: {', '.join(run_dirs)}.")


COMMANDS = {"ensemble": (ensemble, define_ensemble_flags)}


def main() -> None:
    """Entry point."""
    script.run_command(COMMANDS, __doc__)


if __name__ == "__main__":
    main()
