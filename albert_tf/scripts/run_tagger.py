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
from albert_tf.tasks.tagging.data import (
    read_tagged,
    training_tags,
)


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags("Words with tags in columns, or rows (.jsonl, .json, .parquet),")


def _main() -> None:
    shared.check_requested()
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.runner import run
    from albert_tf.tasks.tagging.task import TaggingTask

    # All data is read before anything is trained, so that its errors show at once.
    run(
        *shared.open_run(
            TaggingTask,
            "custom",
            lambda action, _: read_tagged(shared.file_of(action)),
            lambda texts: {"tags": training_tags(texts)},
        )
    )
    shared.suggest('tag {} "Ada Lovelace was born in London."')


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags)
