# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of TensorFlow's import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "TF_USE_LEGACY_KERAS")


def start(code, *paths, **environment):
    """Runs code in another process and returns its standard output and error."""
    kept = {key: value for key, value in os.environ.items() if key not in SETTINGS}
    path = os.pathsep.join(map(str, [*paths, ROOT]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def silent(tmp_path):
    """A folder with an empty module tensorflow."""
    (tmp_path / "tensorflow.py").touch()
    return tmp_path


@pytest.mark.parametrize(("settings", "value"), [({}, "1"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "0")])
def test_scripts_use_onednn_s_kernels_by_default(silent, settings, value):
    code = "from albert_tf.io.tensorflow_import import prepare_tensorflow as p; p()\n"
    code += "import os, tensorflow; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    assert start(code, silent, **settings)[0] == f"{value}\n"


def test_importing_the_package_changes_no_settings(silent):
    code = "import albert_tf.cli.script, os, tensorflow\n"
    code += f"print([name for name in {SETTINGS} if name in os.environ])"
    assert start(code, silent)[0] == "[]\n"


def test_scripts_hide_the_warning_about_pkg_resources(tmp_path):
    (tmp_path / "tensorflow_hub.py").write_text(
        "import warnings\n"
        "warnings.warn('pkg_resources is deprecated as an API. See the docs.')\n"
        "warnings.warn('Something else.')\n"
    )
    code = """
from albert_tf.cli import script
def main():
    import tensorflow_hub
script.run(main, lambda: None)
"""
    _, shown = start(code, tmp_path)
    assert "Something else." in shown and "pkg_resources" not in shown


def test_a_script_imports_only_one_keras(tmp_path):
    code = f"""
import sys
from albert_tf.cli import script
def main():
    from albert_tf.keras2 import keras
    import tensorflow as tf
    tf.train.Checkpoint(x=tf.Variable([1.0])).save({str(tmp_path / "ckpt")!r})
    print({{keras.__name__.split(".")[0]}} == {{"keras", "tf_keras"}} & set(sys.modules))
script.run(main, lambda: None)
"""
    assert start(code)[0] == "True\n"
