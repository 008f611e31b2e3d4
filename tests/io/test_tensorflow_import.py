# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The import of TensorFlow: its settings, and what a script shows of its messages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "TF_USE_LEGACY_KERAS")
#: As TensorFlow 2.21 writes them, with an error that matters between them.
ABSEIL = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
NO_GPU = "I0000 00:00:1.5 7 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU "
NO_GPU += "will not be used."
ERROR = "E0000 00:00:1.5 7 loader.cc:9] The library was compiled for another machine."


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
def loud(tmp_path):
    """A folder with a module tensorflow that writes the real one's messages, and an error."""
    package = tmp_path / "tensorflow"
    package.mkdir()
    lines = "\n".join([ABSEIL, NO_GPU, ERROR, ABSEIL, NO_GPU, ""])
    (package / "__init__.py").write_text(f"import os\nos.write(2, {lines.encode()})\nplace = 1\n")
    (package / "part.py").write_text(f"import os\nos.write(2, {(NO_GPU + chr(10)).encode()})\n")
    return tmp_path


SCRIPT = """
from albert_tf.cli import script
def main():
    import tensorflow as tf
    import tensorflow.part
    print(tf.place, tf.__spec__.name)
script.run(main, lambda: None)
"""


def test_a_script_shows_errors_of_the_import_and_drops_its_start_up_lines(loud):
    assert start(SCRIPT, loud) == ("1 tensorflow\n", f"{ERROR}\n{NO_GPU}\n")


def test_log_level_0_shows_everything(loud):
    _, shown = start(SCRIPT, loud, TF_CPP_MIN_LOG_LEVEL="0")
    assert shown.splitlines() == [ABSEIL, NO_GPU, ERROR, ABSEIL, NO_GPU, NO_GPU]


@pytest.mark.parametrize(("settings", "value"), [({}, "1"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "0")])
def test_scripts_use_onednn_s_kernels_by_default(loud, settings, value):
    code = "from albert_tf.io.tensorflow_import import prepare_tensorflow as p; p()\n"
    code += "import os, tensorflow; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    assert start(code, loud, **settings)[0] == f"{value}\n"


def test_importing_the_package_changes_no_settings(loud):
    code = "import albert_tf.cli.script, os, tensorflow\n"
    code += f"print([name for name in {SETTINGS} if name in os.environ])"
    shown, error = start(code, loud)
    assert shown == "[]\n" and NO_GPU in error


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


def test_without_tensorflow_python_s_import_error_is_raised(tmp_path):
    code = "from albert_tf.io.tensorflow_import import prepare_tensorflow as p; p()\n"
    code += "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
    code += "try:\n  import tensorflow\nexcept ModuleNotFoundError as e:\n  print(e.name)"
    assert start(code) == ("tensorflow\n", "")


def test_a_script_imports_only_one_keras_and_shows_no_log(tmp_path):
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
    assert start(code) == ("True\n", "")
