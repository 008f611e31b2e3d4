# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiments of the ALBERT paper (Lan et al., 2020), one command each.

  python -m benchmarks.paper corpus --input_file=books.txt.gz --output_dir=runs/text

--help after the command explains it; docs/reproduction.md tells what each table needs.
"""

from __future__ import annotations

from albert_tf import cli
from benchmarks.paper import corpus

#: What `cli.run` takes, by the first argument.
COMMANDS = {
    "corpus": (corpus.main, corpus.define_flags),
}

if __name__ == "__main__":
    cli.run_command(COMMANDS, __doc__)
