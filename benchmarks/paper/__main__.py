# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiments of the ALBERT paper (Lan et al., 2020), one command each.

  python -m benchmarks.paper table5 --scale=tiny --text=books.txt.gz --data_dir=data
  python -m benchmarks.paper table5 --scale=paper --text=corpus/*.txt
  python -m benchmarks.paper figure1 --checkpoints=a=runs/a --input_file=a.txt --output_dir=runs

For the flags of a command, add --help after it. docs/reproduction.md says what each table needs.
"""

from __future__ import annotations

from benchmarks.paper import corpus, figure1, run, speed
from benchmarks.subcommands import run_command

#: What `script.run` takes, by the first argument.
COMMANDS = {
    **run.COMMANDS,
    "corpus": (corpus.main, corpus.define_flags),
    "speed": (speed.main, speed.define_flags),
    "figure1": (figure1.main, figure1.define_flags),
}


def main() -> None:
    """Runs the command that the first argument names."""
    run_command(COMMANDS, __doc__)


if __name__ == "__main__":
    main()
