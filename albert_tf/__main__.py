# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `albert`, also `python -m albert_tf`: lists the commands and starts one.

A command is a script, or a module of `albert_tf.commands`, which uses a model. `classify`,
`answer`, `choose`, `embed` and `tag` are both: if the first argument is not a flag, it is the model
to use; otherwise they are the script that trains it.
"""

from __future__ import annotations

import difflib
import importlib
import sys

from albert_tf import __version__

#: The commands by group, in the order of the list. Each has a summary and modules below albert_tf:
#: one that uses a model, a script, or both in this order. They have a docstring of lines that fit a
#: terminal, `define_flags` and `main`.
GROUPS = {
    "Use a pretrained model: albert fill-mask MODEL TEXT...": {
        "fill-mask": ("predict the words in place of [MASK]", "commands.fill_mask"),
    },
    "Fine-tune a model, and use it: albert classify MODEL TEXT...": {
        "sample-data": ("write a table to try classify with", "scripts.sample_data"),
        "classify": (
            "label texts or pairs: your own data, GLUE",
            "commands.classify",
            "scripts.run_classifier",
        ),
        "answer": ("answer questions about a text: SQuAD", "commands.answer", "scripts.run_squad"),
        "choose": (
            "choose among options: your own data, RACE",
            "commands.choose",
            "scripts.run_race",
        ),
        "embed": ("compute a vector for each text", "commands.embed", "scripts.run_embedder"),
        "tag": ("find entities in texts, or tag words", "commands.tag", "scripts.run_tagger"),
    },
    "Pretrain a model on your own text": {
        "split-sentences": (
            "convert raw text to one sentence per line",
            "data_prep.split_sentences",
        ),
        "train-sentencepiece": ("train a vocabulary", "data_prep.train_sentencepiece"),
        "extend-vocabulary": (
            "add your words to a model's vocabulary",
            "commands.extend_vocabulary",
        ),
        "create-pretraining-data": (
            "build records from sentences",
            "data_prep.create_pretraining_data",
        ),
        "verify-records": ("check or print records", "data_prep.verify_records"),
        "pretrain": ("train a model on records", "scripts.run_pretraining"),
    },
    "Convert and export a model": {
        "convert-checkpoint": (
            "convert from and to TF1, Hugging Face and TF-Hub",
            "scripts.convert_checkpoint",
        ),
        "export": ("write a SavedModel or a TensorFlow Lite model", "scripts.export_tfhub"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def overview() -> str:
    """Returns the list of commands."""
    width = max(map(len, COMMANDS)) + 2
    lines = [
        "usage: albert COMMAND ...",
        "       albert COMMAND --help   explains it, with examples",
    ]
    for title, group in GROUPS.items():
        lines += ["", title]
        lines += [f"  {name:<{width}}{summary}" for name, (summary, *_) in group.items()]
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


def _run(name: str, arguments: list[str]) -> None:
    loaded = [importlib.import_module(f"albert_tf.{x}") for x in COMMANDS[name][1:]]
    if arguments and not arguments[0].startswith("-"):
        loaded = loaded[:1]
    # What absl prints for --help, where %% is %.
    texts = [module.__doc__.strip() for module in loaded]
    if len(loaded) > 1:
        texts[0] += f"\n\n  albert {name} MODEL --help     lists the flags of this form"
    sys.modules["__main__"].__doc__ = "\n\n".join(texts).replace("%", "%%") + "\n"
    sys.argv = [f"albert {name}", *arguments]
    loaded[-1].main()


if __name__ == "__main__":
    main()
