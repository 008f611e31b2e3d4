# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The split into training and held-out documents."""

import gzip

import pytest

from benchmarks.paper.corpus import documents, split

pytestmark = pytest.mark.tooling


def text(first, last):
    return "".join(f"Document {n}.\nIts end, é.\n\n" for n in range(first, last))


def numbers(path):
    return [int(document[0].split()[1].rstrip(".")) for document in documents(str(path))]


def test_every_fortieth_document_is_held_out_over_all_files(tmp_path):
    (tmp_path / "a.txt").write_text(text(0, 50))
    with gzip.open(tmp_path / "b.txt.gz", "wt") as f:
        f.write("\n \n" + text(50, 130).strip())
    patterns = f"{tmp_path}/a.txt,{tmp_path}/b.*"
    assert split(patterns, str(tmp_path / "out")) == (127, 3)
    assert numbers(tmp_path / "out/heldout.txt") == [39, 79, 119]
    assert numbers(tmp_path / "out/train.txt") == [n for n in range(130) if n % 40 != 39]
    assert "Document 0.\nIts end, é.\n\n" in (tmp_path / "out/train.txt").read_text()
