# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The flags of the commands that average the predictions of several runs."""

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
    """Defines --run_dirs, --output_dir and --overwrite.

    Args:
      runner: the script that made the runs, for the help.
    """
    define_paths(
        "run_dirs", None, f"Output directories of {runner}, or globs, separated by commas. Each "
        "must contain predictions for these questions.",
        required=True, check=check_run_dirs,
    )  # fmt: skip
    define_path(
        "output_dir", None, "Folder for the averaged predictions.",
        required=True, check=files.check_output_folder,
    )  # fmt: skip
    script.define_overwrite_flag()


@contextlib.contextmanager
def claimed_output_dir(names: Iterable[str]) -> Iterator[None]:
    """Locks --output_dir.

    Args:
      names: the names of the files to be written to it.

    Raises:
      AlbertError: one of them exists and --overwrite is not given, or a run trains in the folder.
    """
    with lock_folder(FLAGS.output_dir, "writing"):
        for name in names:
            files.check_output(os.path.join(FLAGS.output_dir, name), (), FLAGS.overwrite)
        yield


def member_dirs() -> list[str]:
    """Returns the folders of --run_dirs.

    Raises:
      AlbertError: one does not exist, or is --output_dir, where predictions would be overwritten.
    """
    folders = files.expand_globs(FLAGS.run_dirs, "run directory")
    if os.path.realpath(FLAGS.output_dir) in map(os.path.realpath, folders):
        raise AlbertError(
            f"--output_dir={FLAGS.output_dir} is among --run_dirs; give a folder that is "
            "not one of the runs, or the averaged predictions would replace its own."
        )
    return folders
