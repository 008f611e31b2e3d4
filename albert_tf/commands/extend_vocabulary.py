# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Adds the words of a text to a pretrained model's vocabulary.

  albert extend-vocabulary albert_small_books --input_file=words.txt \\
    --output_dir=models/ours
  albert extend-vocabulary albert_small_books --input_file=corpus.txt \\
    --vocab_size=9000 --output_dir=models/ours

Words that are pieces already are left out. New pieces follow the old ones,
which keep their ids, and begin with the mean of the pieces that stood for the
word. Then build records with --vocab_file=models/ours, and continue
pretraining with --init_checkpoint=models/ours.
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_overwrite_flag, define_path


def define_flags() -> None:
    """Defines the flags of this command."""
    define_path(
        "input_file", None, "Words, one a line, or any text: a comma list of paths and globs. "
        "UTF-8, plain or compressed (.gz, .bz2, .xz).", required=True
    )  # fmt: skip
    flags.DEFINE_integer(
        "vocab_size", None, "Number of pieces of the new vocabulary: so many of the most frequent "
        "words are added. Default: all words are.", 1
    )  # fmt: skip
    define_path("output_dir", None, "A new folder for the model.", required=True)
    define_overwrite_flag()


@script.command(define_flags, "MODEL")
def main(path: str) -> None:
    """Runs the command."""
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.weights.vocabulary import extend_vocabulary

    words = extend_vocabulary(
        path, FLAGS.input_file, FLAGS.output_dir, FLAGS.vocab_size, FLAGS.overwrite
    )
    print(f"{FLAGS.output_dir}: {len(words)} new pieces.")
