# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT to answer questions about a text (SQuAD 1.1 and 2.0).

  albert answer --version=2.0 --do_train --do_eval \\
    --train_file=train-v2.0.json --eval_file=dev-v2.0.json \\
    --init_checkpoint=runs/base --output_dir=runs/squad
  albert answer --do_predict --predict_file=new.json \\
    --output_dir=runs/squad

Evaluation and prediction write predictions.json, nbest_predictions.json and,
for 2.0, null_odds.json into the output directory; evaluation also writes
eval_results.json. The directory has all that prediction needs: the model, its
settings and the threshold found on --eval_file, above which a question counts
as unanswerable. Settings come from a recipe for the model's size.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS
from albert_tf.tasks import flags as shared
from albert_tf.tasks.squad.data import SquadSpec


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags(
        "Questions in SQuAD's JSON layout or rows (.json, .jsonl, .csv, .tsv)", SquadSpec
    )
    flags.DEFINE_float(
        "null_score_diff_threshold", None, "A question of 2.0 counts as unanswerable if its null "
        "odds are above this value. Default: the best value on --eval_file, else 0."
    )  # fmt: skip


@script.command(define_flags)
def main() -> None:
    """Runs the script."""
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.squad.task import SquadTask

    def change(task) -> None:
        if FLAGS.null_score_diff_threshold is not None:
            task.use_threshold(FLAGS.null_score_diff_threshold)

    use = 'answer {} "Who wrote it?" "Ada Lovelace wrote it in 1843."'
    shared.fine_tune(SquadTask, use, change=change)
