# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains ALBERT to give texts vectors that are similar where the texts are.

  albert embed --do_train --do_eval --train_file=sentences.txt \\
    --eval_file=scored.tsv --init_checkpoint=runs/base \\
    --output_dir=runs/vectors
  albert embed --do_predict --predict_file=new.txt --output_dir=runs/vectors

A file has a text per line; or it is a table (.tsv, .csv, .jsonl, .json or
.parquet) with the columns text, or text and text_pair, two texts that belong
together, perhaps with negative, a text that does not belong to them; or text,
text_pair and score, a number. Columns may also be called anchor, positive and
negative, or sentence1, sentence2 and score. Evaluation needs pairs, and writes
eval_results.json: correlations with the scores, or how often the right text is
found. Prediction writes vectors.npy.
"""

from __future__ import annotations

from albert_tf.cli import script
from albert_tf.tasks import flags as shared
from albert_tf.tasks.embedding.data import EmbeddingSpec


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags(
        "Texts (a line each), or a table of texts or pairs,", EmbeddingSpec
    )


@script.command(define_flags)
def main() -> None:
    """Runs the script."""
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.embedding.task import EmbeddingTask

    shared.fine_tune(EmbeddingTask, 'embed {} "A ship sailed." "She danced."')
