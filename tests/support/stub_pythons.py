# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A project folder for the shell scripts that make environments, with interpreters of any version.

The scripts are the real ones; the interpreters are stubs around the Python that runs the tests.
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
#: The real Python judges the scripts' conditions with another version. The environments that it
#: makes hold itself. What it is asked to install and to run is written down, and done as the
#: project's folder says: `pip` and `pytest` there are run if they exist.
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
    """A project folder with the scripts and nothing installed, and a PATH without Python."""

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
        """Puts interpreters on the PATH: minor versions by name, with _ for the dot."""
        for name, minor in minors.items():
            self.put_python(f"bin/{name.replace('_', '.')}", minor)

    def run(self, script, *arguments, **environment):
        """Runs a script with this PATH alone."""
        return subprocess.run(
            [self.folder / "scripts" / script, *arguments],
            env={"PATH": str(self.folder / "bin"), "HOME": str(self.folder), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
