# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A project folder for the shell scripts that create environments, with stub interpreters.

The scripts are real; the interpreters are stubs of any version around the tests' own Python.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "bash", "dirname", "cksum", "cut", "cat", "cp", "df", "awk", "tail", "grep", "mkdir", "rm",
    "sed", "sort", "tee", "timeout", "touch",
)  # fmt: skip
#: Evaluates the scripts' conditions with another version, and creates environments that contain
#: the stub itself. Calls of pip and pytest are logged in `called-pip` and `called-pytest`; the
#: scripts `pip` and `pytest` in the project's folder, if they exist, stand in for them.
STUB = """
case "$1 $2" in
  --version*) echo Python {version[0]}.{version[1]}.0 ;;
  "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip" | "-m pytest")
    echo "$@" >>"called-$2"
    if [[ -e $2 ]]; then bash "$2"; fi ;;
  *) exec {python} -c "import sys; sys.version_info = {version}
$2" "${{@:3}}" ;;
esac
"""


class Project:
    """A project folder with the scripts, no environment, and a PATH without Python."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        for name in ("requirements.txt", "requirements-dev.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        (folder / "bin").mkdir()
        for tool in TOOLS:
            (folder / "bin" / tool).symlink_to(shutil.which(tool))

    def __truediv__(self, name):
        """Returns the path of a file in the folder."""
        return self.folder / name

    def put(self, path, script):
        """Writes a program."""
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        path.chmod(0o755)

    def put_python(self, path, minor):
        """Writes an interpreter of version 3.`minor`."""
        self.put(path, STUB.format(version=(3, minor), python=sys.executable))

    def put_pythons(self, **minors):
        """Adds interpreters to the PATH: minor versions by name, with _ for the dot."""
        for name, minor in minors.items():
            self.put_python(f"bin/{name.replace('_', '.')}", minor)

    def run(self, script, *arguments, **environment):
        """Runs a script with this PATH only."""
        return subprocess.run(
            [self.folder / "scripts" / script, *arguments],
            env={"PATH": str(self.folder / "bin"), "HOME": str(self.folder), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
