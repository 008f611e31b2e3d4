# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/languages.md run, from Chinese text to SavedModels that answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import write_vocabulary

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/languages.md"
#: What the commands on the page read, beside the package.
NEEDED = ("data_prep", "tests", "export_tfhub.py", *(p.name for p in ROOT.glob("run_*.py")))


def blocks():
    """Returns the page's blocks of code with their languages, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.M | re.S)


def run(language, code, folder):
    command = ["bash", "-ec"] if language == "bash" else [sys.executable, "-c"]
    search = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    done = subprocess.run([*command, code], cwd=folder, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode()


def results(folder, name):
    return json.loads((folder / f"runs/zh/{name}/eval_results.json").read_text())


@pytest.mark.slow
def test_a_chinese_model_is_trained_fine_tuned_and_exported(tmp_path):
    for name in NEEDED:
        (tmp_path / name).symlink_to(ROOT / name)
    printed = ""
    for language, code in blocks():
        if language in ("bash", "python"):
            printed = run(language, code, tmp_path)
        elif not code.startswith(("python ", "eval")):
            # Figures of training depend on the machine; these are of the text alone, or answers.
            assert code.splitlines()[-1] in printed.splitlines(), printed
    tokenizer = Tokenizer.from_file(str(tmp_path / "runs/zh/answers/tokenizer.json"))
    assert tokenizer.tokenize("学而时习之，abc") == [*"学而时习之，a", "##b", "##c"]
    assert results(tmp_path, "books")["macro_f1"] > 0.5  # Always "lunyu": 0.43.
    assert results(tmp_path, "answers")["exact_match"] > 30


def test_the_japanese_column_is_right(tmp_path):
    path = write_vocabulary(tmp_path, ["か", "##か", "が", "漢"])
    assert Tokenizer.from_file(path).tokenize("が漢かか") == ["か", "漢", "か", "##か"]
    cased = Tokenizer.from_file(path, strip_accents=False)
    assert cased.tokenize("が漢") == ["が", "漢"]
