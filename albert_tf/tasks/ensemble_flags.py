# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of an ensemble: whose predictions are averaged, and where the mean goes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import check_run_dirs, define_path, define_paths
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.locks import lock_folder

FLAGS = flags.FLAGS


def define_ensemble_flags(runner: str) -> None:
    """Defines --run_dirs and --output_dir.

    Args:
      runner: the script whose runs are averaged, for the help.
    """
    define_paths(
        "run_dirs",
        None,
        f"Comma list of output directories of {runner}, and of globs; what each last predicted "
        "must be these questions.",
        required=True,
        check=check_run_dirs,
    )
    define_path(
        "output_dir", None, "Where the mean goes.", required=True, check=files.check_output_folder
    )
    script.define_overwrite_flag()


@contextlib.contextmanager
def claimed_output_dir(names: Iterable[str]) -> Iterator[None]:
    """Holds --output_dir while the mean is made.

    Args:
      names: of the files that will be written there.

    Raises:
      AlbertError: one is there already, without --overwrite; a run trains there.
    """
    with lock_folder(FLAGS.output_dir, "writing"):
        for name in names:
            files.check_output(os.path.join(FLAGS.output_dir, name), (), FLAGS.overwrite)
        yield


def member_dirs() -> list[str]:
    """The folders of --run_dirs.

    Raises:
      AlbertError: one does not exist, or is --output_dir, whose own predictions would be lost.
    """
    found = files.expand_globs(FLAGS.run_dirs, "run directory")
    if os.path.realpath(FLAGS.output_dir) in map(os.path.realpath, found):
        raise AlbertError(
            f"--output_dir={FLAGS.output_dir} is among --run_dirs; give a folder that is none of "
            "the runs, as the mean would take the place of its predictions."
        )
    return found
