# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How every script starts: flags, one error style, one exit status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from absl import app, flags, logging

from albert_tf.cli.flag_names import name_flags
from albert_tf.cli.path_flags import check_paths
from albert_tf.errors import AlbertError
from albert_tf.io.files import space_for
from albert_tf.io.interrupts import exit_status, stopped_by
from albert_tf.io.signals import StopSignals
from albert_tf.io.tensorflow_import import prepare_tensorflow

#: In absl's message for a required flag that is not given.
_NO_VALUE = "must have a value"


def run(
    main: Callable[..., int | None],
    define_flags: Callable[[], None],
    arguments: Sequence[str] = (),
    check_flags: Callable[[], None] = lambda: None,
) -> None:
    """Defines the script's flags, parses the command line, runs `main` and exits.

    Flags are defined here rather than at import time, so that any two scripts can be imported
    together. All of them appear in the script's ``--help``. Paths are checked before `main` is
    called: see `albert_tf.cli.path_flags`.

    Args:
      main: takes the arguments, returns an exit status or None for 0.
      define_flags: defines the script's absl flags.
      arguments: names of the arguments without dashes, all of which must be given.
      check_flags: raises AlbertError if flags contradict each other. Called before the paths are
        checked, as it may turn out that a path should not have been given.
    """
    with StopSignals() as signals:
        try:
            _run(main, define_flags, arguments, check_flags)
        except (Exception, KeyboardInterrupt) as error:
            # What was interrupted may raise something else, as NumPy's import does.
            if not (signals.received or isinstance(error, KeyboardInterrupt)):
                raise
            number = signals.received or signal.SIGINT
            print(stopped_by(number), file=sys.stderr)
            sys.exit(exit_status(number))


def _run(
    main: Callable[..., int | None],
    define_flags: Callable[[], None],
    arguments: Sequence[str],
    check_flags: Callable[[], None],
) -> None:
    prepare_tensorflow()
    known = set(flags.FLAGS)
    define_flags()
    for name in set(flags.FLAGS) - known:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])

    def guarded(argv: list[str]) -> int | None:
        given = argv[1:]
        if len(given) > len(arguments):
            odd = given[len(arguments)]
            print(f"error: unexpected argument {odd!r}; see --help.", file=sys.stderr)
            return 1
        if len(given) < len(arguments):
            missing = arguments[len(given)]
            print(f"error: {missing} is missing; see --help.", file=sys.stderr)
            return 1
        try:
            check_flags()
            check_paths(flags.FLAGS)
            # Files say what they are; this is for what is written by others' code.
            with space_for("the program's output"):
                return main(*given)
        except AlbertError as error:
            print(f"error: {name_flags(str(error))}", file=sys.stderr)
            return 1
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough; what is still buffered goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1

    app.run(guarded, flags_parser=_parse_flags)


def _parse_flags(argv: list[str]) -> list[str]:
    """Parses all flags; gives the other arguments. A wrong flag ends the program with a line."""
    try:
        rest = flags.FLAGS(argv)
        if flags.FLAGS["verbosity"].using_default_value:
            # Or absl makes it INFO, at which TensorFlow 2.16 and newer log each checkpoint.
            flags.FLAGS.verbosity = logging.WARNING
        return rest
    except flags.Error as error:
        names = [name for name in flags.FLAGS if _is_missing(flags.FLAGS[name])]
        if isinstance(error, flags.IllegalFlagValueError) and _NO_VALUE in str(error):
            listed = " and ".join(f"--{name}" for name in names)
            print(f"error: {listed} must be given; see --help.", file=sys.stderr)
        else:
            print(f"error: {'; '.join(str(error).splitlines())}; see --help.", file=sys.stderr)
        sys.exit(1)
    except SystemExit:  # After --help, which absl takes for an error.
        sys.exit(0)


def _is_missing(flag: flags.Flag) -> bool:
    return flag.value is None and any(_NO_VALUE in str(v.message) for v in flag.validators)


def define_overwrite_flag() -> None:
    """Defines --overwrite; see files.check_output and folders.new_folder."""
    flags.DEFINE_bool(
        "overwrite", False, "Replace what an earlier command has written there. What this command "
        "reads is never replaced."
    )  # fmt: skip


def run_command(commands: Mapping[str, tuple], usage: str) -> None:
    """Starts the command that the first argument names, as `run` does.

    Args:
      commands: arguments of `run` by the command's name.
      usage: printed with --help, and before the error if there is no such command.
    """
    if sys.argv[1:2] and sys.argv[1] in commands:
        run(*commands[sys.argv.pop(1)])
    print(usage.strip())
    if sys.argv[1:2] not in (["--help"], ["-h"]):
        *others, last = commands
        names = f"{', '.join(others)} or {last}" if others else last
        print(f"error: the first argument must be {names}.", file=sys.stderr)
        sys.exit(1)
