# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""MkDocs hooks: files outside docs/ that pages link to become part of the site.

In the repository, and on GitHub, `docs/x.md` links to `../benchmarks/README.md`. In the site the
contents of docs/ lie at the top, so the second is found at `benchmarks/README.md`.
"""

from __future__ import annotations

import os
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_DOCS = "docs/"
#: The target of a link or picture, without its anchor.
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)#\s]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside docs/ that pages link to, and those that these link to."""
    for page in files.documentation_pages():
        _add_linked(page, files, config)
    return files


def _add_linked(page: File, files: Files, config: MkDocsConfig) -> None:
    for link in _LINK.findall(page.content_string):
        path = _repository_path(link, page.src_uri)
        full = os.path.join(ROOT, path)
        if path.startswith(_DOCS) or files.get_file_from_path(path) or not os.path.isfile(full):
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


def _repository_path(link: str, source: str) -> str:
    """Where a link on a page of the site leads, in the repository."""
    in_docs = os.path.exists(os.path.join(ROOT, _DOCS, source))
    folder = posixpath.dirname(_DOCS + source if in_docs else source)
    return posixpath.normpath(posixpath.join(folder, link))


def _site_path(path: str) -> str:
    return path[len(_DOCS) :] if path.startswith(_DOCS) else path
