# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the notebooks of docs/ and writes what they print into them: `make notebook`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
#: Seconds that a single cell may take.
_CELL_SECONDS = 1800


def run_notebook(path: Path) -> NotebookNode:
    """The notebook with its cells run, in a fresh process, and what they print to stdout.

    Progress bars, stderr, times, the machine's Python and the repository's path are left out, so
    that a notebook that is run again differs in its figures alone.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    # Of this repository, wherever the package is installed from.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    client = NotebookClient(
        notebook, timeout=_CELL_SECONDS, resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [
                part
                for part in cell.outputs
                if part.get("name") != "stderr" and part.output_type != "display_data"
            ]
            for part in cell.outputs:
                if part.get("name") == "stdout":
                    part.text = part.text.replace(str(ROOT), "…")
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main() -> None:
    """Runs every notebook below docs/."""
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        began = time.monotonic()
        notebook = run_notebook(path)
        nbformat.write(notebook, path)
        print(f"{path.relative_to(ROOT)}: {time.monotonic() - began:.0f} seconds")


if __name__ == "__main__":
    main()
