# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT to tag words: named entities, parts of speech, or any
other tags.

  albert tag --do_train --do_eval --train_file=train.txt \\
    --eval_file=dev.txt --init_checkpoint=runs/base --output_dir=runs/ner
  albert tag --do_predict --predict_file=new.txt --output_dir=runs/ner

A file has a word and its tag per line and an empty line after each sentence,
as CoNLL-2003 (the last column is the tag); or it is a .jsonl, .json or
.parquet file of rows with tokens and tags, or with text and entities, objects
with start, end and label. Tags are in IOB1, IOB2 or BIOES, or without
prefixes. Evaluation writes eval_results.json, with precision, recall and F1 of
entities; prediction writes predictions.txt, with a word and its tag per line.
"""

from __future__ import annotations

from albert_tf.cli import script
from albert_tf.tasks import flags as shared
from albert_tf.tasks.tagging.data import TaggingSpec


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags(
        "Words with tags in columns, or rows (.jsonl, .json, .parquet),", TaggingSpec
    )


@script.command(define_flags)
def main() -> None:
    """Runs the script."""
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.tagging.task import TaggingTask

    shared.fine_tune(TaggingTask, 'tag {} "Ada Lovelace was born in London."')
