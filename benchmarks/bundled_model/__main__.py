# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluates the bundled model and builds its files. Run it from the project's root:

  python -m benchmarks.bundled_model heldout --output_dir=runs/bundled/heldout
  python -m benchmarks.bundled_model finetune --data_dir=data --output_dir=runs/bundled/finetune
  python -m benchmarks.bundled_model make --run_dirs=runs/books --commands_file=commands.sh

For the flags of a command, add --help after it.
"""

from __future__ import annotations

from benchmarks.bundled_model import finetune, heldout, make
from benchmarks.subcommands import run_command

#: What `script.run` takes, by the first argument.
COMMANDS = {
    "heldout": (heldout.main, heldout.define_flags),
    "finetune": (finetune.main, finetune.define_flags),
    "make": (make.main, make.define_flags),
}

if __name__ == "__main__":
    run_command(COMMANDS, __doc__)
