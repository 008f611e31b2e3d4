# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/flags.md: the flags of every script, from what the scripts print for --help."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

from absl import flags

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = (
    "data_prep.split_sentences",
    "data_prep.train_sentencepiece",
    "data_prep.create_pretraining_data",
    "data_prep.inspect_records",
    "data_prep.verify_records",
    "run_pretraining",
    "run_classifier",
    "run_squad",
    "run_race",
    "convert_checkpoint",
    "albert_tf.weights.verify",
    "export_tfhub",
)
HEADER = """\
# Flags

Every script prints this with `--help`. Flags are given as `--name=value`; those that are true or
false also as `--name` and `--noname`. Where a path is expected, `~` or `~user` at its beginning is
the home directory, in each item of a comma list, too. This page is generated: `make docs` writes it
anew.
"""


def script_flags(script: ModuleType) -> list[flags.Flag]:
    """The flags that `script` defines, in the order of their definition."""
    known = set(flags.FLAGS)
    script.define_flags()
    defined = [flags.FLAGS[name] for name in flags.FLAGS if name not in known]
    for flag in defined:
        delattr(flags.FLAGS, flag.name)
    return defined


def default_text(flag: flags.Flag) -> str:
    """What the table says of the flag's default value."""
    if flag.default is None:
        required = any("must have a value" in str(v.message) for v in flag.validators)
        return "**required**" if required else ""
    return f"`{flag.default_as_str}`".replace("'", "")


def section(name: str) -> str:
    """The part of the page about one script."""
    script = importlib.import_module(name)
    # Examples are indented by two spaces in the scripts; Markdown wants four.
    text = re.sub(r"^  ", "    ", script.__doc__.strip(), flags=re.M)
    lines = [f"## `{name.replace('.', '/')}.py`", "", text, ""]
    lines += ["| flag | default | meaning |", "|---|---|---|"]
    for flag in script_flags(script):
        # Markdown takes <n> for HTML, and | for the end of a cell.
        meaning = " ".join(flag.help.split()).replace("<", "&lt;").replace("|", "\\|")
        if isinstance(flag, flags.EnumFlag):
            values = ", ".join(f"`{value}`" for value in flag.parser.enum_values)
            meaning = f"One of {values}. {meaning.partition('>: ')[2]}"
        lines.append(f"| `--{flag.name}` | {default_text(flag)} | {meaning} |")
    return "\n".join(lines) + "\n"


def flag_reference() -> str:
    """The page."""
    return "\n".join([HEADER, *(section(name) for name in SCRIPTS)])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    (ROOT / "docs/flags.md").write_text(flag_reference(), encoding="utf-8")
