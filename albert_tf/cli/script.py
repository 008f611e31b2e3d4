# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts scripts: parses flags, prints errors in one style and sets the exit status."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence

from absl import app, flags, logging

from albert_tf.cli.flags import FLAGS, name_flags
from albert_tf.errors import AlbertError
from albert_tf.io.files import is_valid_text, space_for
from albert_tf.io.log import show
from albert_tf.io.signals import STOP_SIGNALS, StopSignals
from albert_tf.io.storage import failure
from albert_tf.io.tensorflow_import import prepare_tensorflow

#: Part of absl's message for a required flag that was not given.
_NO_VALUE = "must have a value"


def command(define_flags: Callable[[], None], *arguments: str) -> Callable[[Callable], Callable]:
    """Makes a script of the function that it decorates, see `run`: it takes no arguments then."""
    return lambda main: functools.wraps(main)(functools.partial(run, main, define_flags, arguments))


def run(
    main: Callable[..., object],
    define_flags: Callable[[], None],
    arguments: Sequence[str] = (),
) -> None:
    """Defines the script's flags, parses the command line, runs `main` and exits.

    Flags are defined here rather than at import time, so that any two scripts can be imported
    together. All of them appear in the script's ``--help``.

    Args:
      main: takes the positional arguments, returns an exit status or None for 0.
      define_flags: defines the script's absl flags.
      arguments: names of the positional arguments. "[NAME]" is optional, and the last one may be
        "NAME…" or "[NAME…]", which stands for any number.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # "?" for what the terminal's encoding lacks.
    with StopSignals(first_raises=True) as signals:
        try:
            defined_before = set(FLAGS)
            define_flags()
            for name in set(FLAGS) - defined_before:
                FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])
            app.run(functools.partial(_run, main, arguments), flags_parser=_parse_flags)
        except BrokenPipeError:
            # The reader, such as `head`, has closed the pipe; discard what is still buffered.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except BaseException as error:
            # An interrupted import, such as NumPy's, may raise another exception.
            number = _stop_signal(error) or signals.received
            if number is None:
                raise
            print(f"Stopped by {signal.Signals(number).name}.", file=sys.stderr)
            sys.exit(128 + number)


def _stop_signal(error: BaseException) -> int | None:
    """Returns the signal whose `stop_exception` this is; None for other exceptions."""
    status = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
    status = error.code if isinstance(error, SystemExit) else status
    return next((number for number in STOP_SIGNALS if status == 128 + number), None)


def _run(main: Callable, names: Sequence[str], argv: list[str]) -> int | None:
    """Runs `main` with its arguments; returns its exit status, or prints its error."""
    given = argv[1:]
    try:
        required = [name for name in names if not name.startswith("[")]
        if len(given) < len(required):
            raise AlbertError(f"{required[len(given)].rstrip('…')} is missing; see --help.")
        if len(given) > len(names) and "…" not in "".join(names):
            raise AlbertError(f"unexpected argument {given[len(names)]!r}; see --help.")
        prepare_tensorflow()
        # Our own writers name the file; this covers what libraries write.
        with space_for("the program's output"):
            return main(*given)
    except BrokenPipeError:  # See `run`.
        raise
    except Exception as error:
        if not isinstance(error, AlbertError):
            reason = failure(error)  # Of a file or folder that no check has found.
            if reason is None:
                raise
            error = f"{reason}."
        show(f"error: {name_flags(str(error))}", sys.stderr)
        return 1


def _parse_flags(argv: list[str]) -> list[str]:
    """Parses all flags and returns the other arguments; exits with one line on a wrong flag."""
    try:
        for argument in argv[1:]:
            if not is_valid_text(argument):
                raise flags.Error(f"the argument {argument!r} is not UTF-8, rename the file")
        rest = FLAGS(argv)
        for name in FLAGS:  # The last of --x and --nox would count.
            if FLAGS[name].boolean and FLAGS[name].present > 1:
                raise flags.Error(f"--{name} is given more than once")
        if FLAGS["verbosity"].using_default_value:
            # absl's default is INFO, at which TensorFlow 2.16 and newer log each checkpoint.
            FLAGS.verbosity = logging.WARNING
        return rest
    except flags.Error as error:
        missing = [
            f"--{name}"
            for name in FLAGS
            if FLAGS[name].value is None
            and any(_NO_VALUE in str(x.message) for x in FLAGS[name].validators)
        ]
        message = "; ".join(str(error).splitlines())
        if missing and _NO_VALUE in message:
            message = f"{' and '.join(missing)} must be given"
        show(f"error: {message}; see --help.", sys.stderr)
        sys.exit(1)
    except SystemExit:  # After --help, for which absl exits with status 1.
        sys.exit(0)
