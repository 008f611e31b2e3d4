# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds pretraining records (masked words and sentence order) from sentence
files.

Reads UTF-8 text, one sentence per line, a blank line between documents
(albert split-sentences writes such files). Writes TFRecord shards in the
layout of the TF1 release, manifest.json, and a copy of the tokenizer. Run the
same command again to continue a build that was killed.

  albert create-pretraining-data --input_file='corpus/*.txt.gz' \\
    --spm_model_file=30k-clean.model --output_dir=records

Flags have the names, meanings and defaults of google-research/albert
create_pretraining_data.py, with few exceptions: the default of
--max_predictions_per_seq depends on the sequence length,
--sentence_objective=nsp replaces --random_next_sentence, and neither
--do_permutation nor --input_file_mode exists.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import (
    FLAGS,
    define_overwrite_flag,
    define_path,
    define_settings,
    given_settings,
    refuse_flags,
)
from albert_tf.data_prep.local_runner import LocalRunner
from albert_tf.data_prep.pretraining_build import build_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained.locate import VOCABULARY
from albert_tf.tokenization.tokenizer import Tokenizer


def define_flags() -> None:
    """Defines the flags."""
    define_path(
        "input_file",
        None,
        "Comma list of text files or globs; .gz, .bz2 and .xz are read too. One sentence per line, "
        "a blank line between documents; the end of a file ends a document.",
        required=True,
    )
    define_path(
        "output_dir", None, "Folder for the shards, manifest.json and the tokenizer.", required=True
    )
    define_path("spm_model_file", None, f"{VOCABULARY}. Takes precedence over --vocab_file.")
    define_path("vocab_file", None, "The same as --spm_model_file.")
    flags.DEFINE_bool(
        "do_lower_case", True, "Lower-case the text. A tokenizer.json has its own setting."
    )
    define_settings(PretrainingOptions)
    flags.DEFINE_integer(
        "num_workers",
        1,
        "Processes of this machine. The records do not depend on it. Each process writes whole "
        "shards, so a divisor of the number of shards is best.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "beam_options",
        None,
        "Build with Apache Beam, on this machine or a cluster (docs/scale.md), with these pipeline "
        "options, as on a command line: '--runner=DataflowRunner --project=mine'. The records are "
        "the same.",
    )
    define_overwrite_flag()


def _runner() -> Callable:
    """Returns a function that makes the runner that the flags describe.

    Raises:
      AlbertError: a flag belongs to the other runner, or Beam is not installed.
    """
    if FLAGS.beam_options is None:
        return functools.partial(LocalRunner, num_workers=FLAGS.num_workers)
    refuse_flags(
        ["num_workers"],
        "--beam_options says how many workers Beam has, for example '--direct_num_workers=2 "
        "--direct_running_mode=multi_processing'.",
    )
    try:
        from albert_tf.data_prep.beam_runner import BeamRunner
    except ModuleNotFoundError as error:
        raise AlbertError(
            f"--beam_options needs Apache Beam ({error}); install it with "
            "`pip install apache-beam==2.65.0`, and for Dataflow 'apache-beam[gcp]==2.65.0'."
        ) from error
    try:
        return functools.partial(BeamRunner, beam_options=shlex.split(FLAGS.beam_options))
    except ValueError as error:
        raise AlbertError(f"--beam_options is not a command line: {error}.") from error


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    options = PretrainingOptions(**given_settings(PretrainingOptions))
    vocabulary = FLAGS.spm_model_file or FLAGS.vocab_file
    if not vocabulary:
        raise AlbertError("Give --spm_model_file or --vocab_file.")
    lower_case = FLAGS.do_lower_case if FLAGS["do_lower_case"].present else None
    manifest = build_pretraining_data(
        files.expand_globs(FLAGS.input_file),
        Tokenizer.from_file(vocabulary, lower_case),
        FLAGS.output_dir,
        options,
        _runner(),
        FLAGS.overwrite,
    )
    print(json.dumps(manifest.statistics, indent=2))
    print(f"{manifest.num_examples} instances in {len(manifest.shards)} shards: {FLAGS.output_dir}")
