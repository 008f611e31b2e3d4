# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT to choose among answers: RACE, or questions with any
number of options.

  albert choose --data_dir=RACE --do_train --do_eval --do_predict \\
    --init_checkpoint=runs/base --output_dir=runs/race
  albert choose --do_train --train_file=train.jsonl \\
    --init_checkpoint=runs/base --output_dir=runs/mine
  albert choose --do_predict --predict_file=new.jsonl \\
    --output_dir=runs/mine

RACE is read as distributed, one file for each article: train to train on,
dev to evaluate on, test to predict. A line of a .jsonl file is an object
with context, question, options and label (from 0) or answer (a letter);
context or question may be absent and, for prediction, the label. A blank "_"
in a question is replaced with the option. Evaluation writes eval_results.json,
with the accuracy on all questions and on those of middle and of high schools;
prediction writes predictions.tsv and predict_results.json. Settings come from
a recipe for the model's size; --gradient_accumulation_steps fits its 128
sequences a step into less memory.
"""

from __future__ import annotations

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_path, refuse_flags
from albert_tf.tasks import flags as shared
from albert_tf.tasks.multiple_choice import data

#: The split of RACE that each action reads without a file.
_SPLITS = {"train": "train", "eval": "dev", "predict": "test"}


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags(
        "A .jsonl, .csv or .tsv file (also .gz, .bz2 or .xz), instead of RACE, of questions",
        data.MultipleChoiceSpec,
    )
    FLAGS.set_default("eval_batch_size", data.EVAL_BATCH_SIZE)
    define_path("data_dir", None, "Folder with RACE's folders train, dev and test.")


@script.command(define_flags)
def main() -> None:
    """Runs the script."""
    if FLAGS.data_dir:
        own = [f"{action}_file" for action in shared.ACTIONS]
        refuse_flags(own, "all questions are those of RACE in --data_dir.")
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask

    use = 'choose {} red green \\\n    --question="The kite is _ ." --context="A red kite."'
    read = (lambda x, _: data.read_race(FLAGS.data_dir, _SPLITS[x])) if FLAGS.data_dir else None
    shared.fine_tune(MultipleChoiceTask, use, read)
