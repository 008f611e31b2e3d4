# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""MkDocs hooks: notebooks, and files outside docs/ that pages link to, become part of the site.

In the repository, and on GitHub, `docs/x.md` links to `../benchmarks/README.md`. In the site the
contents of docs/ lie at the top, so the second is found at `benchmarks/README.md`. `docs/index.md`
stands for the README of the repository, which MkDocs would make the site's first page. Of a
notebook `docs/x.ipynb` the site has both the file and a page, `x.md`.
"""

from __future__ import annotations

import json
import os
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_DOCS, _README = "docs/", "README.md"
_NOTEBOOK = ".ipynb"
#: Code within a line, which has no tags in it, and a flag there.
_INLINE_CODE = re.compile(r"<code>[^<]*--[^<]*</code>")
_FLAG = re.compile(r"--\w+")
#: The target of a link or picture, without its anchor.
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)#\s]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pages of notebooks, and the files outside docs/ that pages link to, directly or not."""
    for notebook in [file for file in files if file.src_uri.endswith(_NOTEBOOK)]:
        text = notebook_as_markdown(notebook.content_string)
        files.append(File.generated(config, _site_path(notebook.src_uri), content=text))
    for page in files.documentation_pages():
        _add_linked(page, files, config)
    return files


def notebook_as_markdown(content: str) -> str:
    """The text of a notebook, its code, and what it printed."""
    parts = []
    for cell in json.loads(content)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(output.get("text", [])) for output in cell["outputs"])
        if printed.strip():
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts)


def _add_linked(page: File, files: Files, config: MkDocsConfig) -> None:
    for link in _LINK.findall(page.content_string):
        path = _repository_path(link, page.src_uri)
        full = os.path.join(ROOT, path)
        if path.startswith(_DOCS) or path == _README or not os.path.isfile(full):
            continue
        if files.get_file_from_path(path):
            continue
        linked = File.generated(config, path, abs_src_path=full)
        files.append(linked)
        if linked.is_documentation_page():
            _add_linked(linked, files, config)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the repository into links between files of the site."""
    del config
    source = page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        target = _site_path(_repository_path(match[0], source))
        known = files.get_file_from_path(target)
        return posixpath.relpath(target, posixpath.dirname(source) or ".") if known else match[0]

    return _LINK.sub(moved, markdown)


def on_page_content(html: str, **kwargs: object) -> str:
    """Marks flags within lines, so that the style sheet keeps them from being broken at dashes."""
    del kwargs

    def marked(match: re.Match[str]) -> str:
        return _FLAG.sub(r'<span class="flag">\g<0></span>', match[0])

    return _INLINE_CODE.sub(marked, html)


def _repository_path(link: str, source: str) -> str:
    """Where a link on a page of the site leads, in the repository."""
    outside = os.path.exists(os.path.join(ROOT, source))
    folder = posixpath.dirname(source if outside else _DOCS + source)
    return posixpath.normpath(posixpath.join(folder, link))


def _site_path(path: str) -> str:
    """Where a file of the repository is found in the site's sources."""
    path = "index.md" if path == _README else path.removeprefix(_DOCS)
    return path.removesuffix(_NOTEBOOK) + ".md" if path.endswith(_NOTEBOOK) else path
