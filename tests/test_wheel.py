# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The wheel: its content, and that it works on each Python with nothing else installed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
#: A small package without dependencies that is needed anyway.
PROBE = "absl-py==2.1.0"

pytestmark = pytest.mark.slow


def run(*command, **kwargs):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=1200, **kwargs
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built from its source distribution."""
    tree, dist = tmp_path_factory.mktemp("tree") / "albert_tf", tmp_path_factory.mktemp("dist")
    # A copy, because files of an earlier build in build/ would get into the wheel.
    unwanted = shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=unwanted)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, tree)
    return next(dist.glob("*.whl"))


def test_the_wheel_has_the_package_and_its_data_but_no_tests(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {
        str(path.relative_to(ROOT))
        for path in (ROOT / "albert_tf").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "albert_tf/configs/models/albert_base_v2.json" in names
    assert "albert_tf/pretrained/albert_tiny_books/model.safetensors" in names


class Installed:
    """A fresh environment with the wheel installed, and an empty working folder."""

    def __init__(self, venv, folder):
        self.bin, self.folder = venv / "bin", folder

    def __call__(self, name, *arguments):
        """Runs one of its programs without this process's environment variables."""
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder)}
        return run(self.bin / name, *arguments, cwd=self.folder, env=environment)


@pytest.fixture(scope="module", params=PYTHONS)
def installed(request, wheel, tmp_path_factory):
    python = shutil.which(f"python{request.param}")
    check = [python, "-c", "import ensurepip, venv"]
    if not python or subprocess.run(check, stderr=subprocess.DEVNULL).returncode:
        pytest.skip(f"There is no Python {request.param} with venv on this machine.")
    venv, folder = tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("folder")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run(python, "-m", "venv", venv, env=environment)
    pip = [venv / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    probe = [*pip, "download", "-q", "--no-cache-dir", "--no-deps", "-d", folder / "probe", PROBE]
    if subprocess.run(probe, capture_output=True, env=environment).returncode:
        pytest.skip("The package index cannot be reached.")
    run(*pip, "install", "-q", wheel, env=environment)
    shutil.rmtree(folder / "probe")
    yield Installed(venv, folder)
    shutil.rmtree(venv)  # About 3 GB.


def test_requirements_of_the_wheel_are_compatible(installed):
    installed("python", "-m", "pip", "check")
    versions = installed("python", "-m", "pip", "freeze").stdout
    tensorflow, keras = (
        re.search(rf"^{name}==(\d+\.\d+)", versions, flags=re.M)[1]
        for name in ("tensorflow", "tf_keras")
    )
    assert tensorflow == keras


def test_python_code_of_the_readme_runs(installed):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    shape, filled = installed("python", "-c", code).stdout.splitlines()
    assert shape == "(2, 256)"
    assert re.fullmatch(r"it was the \S+ of times\.", filled, flags=re.I)


def test_commands_show_their_help_and_use_a_model(installed):
    done = installed("albert", "pretrain", "--help")
    assert "--input_file" in done.stdout
    assert not done.stderr
    done = installed("albert", "--help")
    assert re.search(r"^  pretrain +train a model on records$", done.stdout, re.M)
    done = installed("albert", "fill-mask", "albert_tiny_books", "It was the [MASK] of times.")
    assert len(re.findall(r"^\S+% +\w+ +It was the \w+ of times\.$", done.stdout, re.M)) == 5


def test_fine_tuning_command_of_the_readme_runs_and_its_model_is_exported(installed):
    installed("albert", "sample-data")
    for table in (installed.folder / "authors").iterdir():
        lines = table.read_text("utf-8").splitlines(True)
        table.write_text("".join(lines[:41]), "utf-8")
    (command,) = re.findall(r"^albert (classify --do.*authors.*\\\n.*)$", README, flags=re.M)
    given = shlex.split(command.replace("\\\n", ""))
    tuned = installed("albert", *given, "--num_train_epochs=1")
    assert "\n  albert classify runs/authors " in tuned.stdout
    assert "albert_tiny_books" in tuned.stdout
    assert (installed.folder / "runs/authors/eval_results.json").exists()
    (command,) = re.findall(r"^albert (classify runs/authors .*)$", README, flags=re.M)
    classified = installed("albert", *shlex.split(command)).stdout.splitlines()
    assert [line.split("  ")[-1][:4] for line in classified] == ["The ", "She "]
    exported = installed(
        "albert", "export", "--albert_directory=runs/authors",
        "--export_path=exports/authors",
    )  # fmt: skip
    assert "Checked in a fresh process" in exported.stdout


def test_pretraining_with_lamb_on_new_records_runs(installed):
    text = (ROOT / "demo/data/books/heldout/darwin.txt").read_text("utf-8")
    (installed.folder / "book.txt").write_text(text[:100000], "utf-8")
    vocabulary = next(installed.bin.parent.glob("lib*/python*/site-packages/albert_tf"))
    vocabulary = vocabulary / "pretrained/albert_tiny_books/spiece.model"
    installed("albert", "split-sentences", "--input_file=book.txt", "--output_file=sentences.txt")
    installed(
        "albert", "create-pretraining-data", "--input_file=sentences.txt", "--output_dir=records",
        f"--spm_model_file={vocabulary}", "--max_seq_length=64",
    )  # fmt: skip
    done = installed(
        "albert", "pretrain", "--input_file=records", "--albert_config_file=albert_test",
        "--output_dir=run", "--train_batch_size=8", "--num_train_steps=2", "--num_warmup_steps=1",
    )  # fmt: skip
    assert (installed.folder / "run/checkpoints/ckpt-2.index").exists(), done.stdout
