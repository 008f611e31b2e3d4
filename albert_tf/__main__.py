# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `albert`, also `python -m albert_tf`: lists the commands and starts one.

A command is a script, or a module of `albert_tf.commands`, which uses a model. `classify`, `answer`
and `choose` are both: if the first argument is not a flag, it is the model to use; otherwise they
are the script that trains it.
"""

from __future__ import annotations

import difflib
import importlib
import re
import shutil
import sys
import textwrap
from typing import NamedTuple

from albert_tf.version import __version__


class Command(NamedTuple):
    """A command.

    Attributes:
      summary: for the list of commands.
      script: name of the module that it is; None if it has no form without a model.
      takes_model: whether there is a module of its name in `albert_tf.commands`.
    """

    summary: str
    script: str | None = None
    takes_model: bool = False


#: The commands by group, in the order of the list.
GROUPS = {
    "Use a model: albert embed MODEL TEXT...": {
        "embed": Command("compute a vector for each text", takes_model=True),
        "fill-mask": Command("predict the words in place of [MASK]", takes_model=True),
    },
    "Fine-tune a model, and use it: albert classify MODEL TEXT...": {
        "classify": Command("label texts or pairs: your own data, GLUE", "run_classifier", True),
        "answer": Command("answer questions about a text: SQuAD", "run_squad", True),
        "choose": Command("choose among options: your own data, RACE", "run_race", True),
    },
    "Pretrain a model on your own text": {
        "split-sentences": Command(
            "convert raw text to one sentence per line", "data_prep.split_sentences"
        ),
        "train-sentencepiece": Command("train a vocabulary", "data_prep.train_sentencepiece"),
        "create-pretraining-data": Command(
            "build records from sentences", "data_prep.create_pretraining_data"
        ),
        "verify-records": Command("check or print records", "data_prep.verify_records"),
        "pretrain": Command("train a model on records", "run_pretraining"),
    },
    "Convert and export a model": {
        "convert-checkpoint": Command(
            "convert from and to TF1, Hugging Face and TF-Hub", "convert_checkpoint"
        ),
        "export": Command("write a SavedModel or a TensorFlow Lite model", "export_tfhub"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
#: Arguments in an example; spaces in quotes do not end one.
_ARGUMENT = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")


def overview() -> str:
    """Returns the list of commands."""
    width = max(map(len, COMMANDS)) + 2
    lines = [
        "usage: albert COMMAND ...",
        "       albert COMMAND --help   explains it, with examples",
    ]
    for title, group in GROUPS.items():
        lines += ["", title]
        lines += [f"  {name:<{width}}{command.summary}" for name, command in group.items()]
    return "\n".join(lines)


def main() -> None:
    """Runs the command that the first argument names, and exits."""
    if len(sys.argv) < 2:
        print(overview(), file=sys.stderr)
        sys.exit(1)
    name, *arguments = sys.argv[1:]
    if name in ("--help", "-h"):
        print(overview())
    elif name == "--version":
        print(f"albert_tf {__version__}")
    elif name in COMMANDS:
        _run(name, arguments)
    else:
        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {close[0]}?" if close else "."
        print(f"error: There is no command {name!a}{hint} See albert --help.", file=sys.stderr)
        sys.exit(1)


def modules(name: str) -> list[str]:
    """Returns the names of a command's modules: first the one that uses a model, then the script.

    Each has a docstring, `define_flags` and `main`.
    """
    command = COMMANDS[name]
    used = f"albert_tf.commands.{name.replace('-', '_')}" if command.takes_model else None
    return [module for module in (used, command.script) if module]


def _run(name: str, arguments: list[str]) -> None:
    loaded = [importlib.import_module(module) for module in modules(name)]
    if arguments and not arguments[0].startswith("-"):
        loaded = loaded[:1]
    # What absl prints for --help, where %% is %, and the name of the program in it.
    texts = [command_help(name, module.__doc__) for module in loaded]
    if len(loaded) > 1:
        texts[0] += f"\n\n  albert {name} MODEL --help     lists the flags of this form"
    sys.modules["__main__"].__doc__ = "\n\n".join(texts).replace("%", "%%") + "\n"
    sys.argv = [f"albert {name}", *arguments]
    loaded[-1].main()


def command_help(name: str, text: str) -> str:
    """Returns a docstring with the command's name in its examples, in lines that fit the terminal.

    Args:
      name: of the command.
      text: the docstring of its module. Paragraphs of examples, one per line, are indented.
    """
    script = COMMANDS[name].script
    text = text.replace(f"python {script}.py", f"albert {name}")
    text = text.replace(f"python -m {script}", f"albert {name}")
    columns = shutil.get_terminal_size().columns or 80  # Some terminals report none.
    width = max(20, min(100, columns) - 1)
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith(" "):
            examples = paragraph.replace("\\\n", "").splitlines()
            paragraphs.append("\n".join(_wrapped_example(e, width) for e in examples))
        else:
            paragraphs.append(textwrap.fill(" ".join(paragraph.split()), width))
    return "\n\n".join(paragraphs)


def _wrapped_example(example: str, width: int) -> str:
    """Breaks a shell command between arguments."""
    lines = [" "]
    for argument in _ARGUMENT.findall(example):
        if len(lines[-1]) + len(argument) + 3 > width:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {argument}"
    return "\n".join(lines)


if __name__ == "__main__":
    main()
