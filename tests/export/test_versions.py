# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbered version folders."""

import pytest
from albert_tf.export.versions import export_name, version_folder

import albert_tf
from albert_tf.errors import AlbertError


def test_a_version_is_a_folder_below_the_path(tmp_path):
    path = str(tmp_path / "rte")
    assert version_folder(path, None) == path
    assert version_folder(path, 7) == f"{path}/7"
    (tmp_path / "rte/7").mkdir(parents=True)
    assert version_folder(path, 7, overwrite=True) == f"{path}/7"
    assert version_folder(path, 8) == f"{path}/8"
    with pytest.raises(AlbertError, match=r"rte has a version 7 already; give another `version`"):
        version_folder(path, 7)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, 2**63])
def test_a_version_is_a_positive_integer(version, tmp_path):
    with pytest.raises(AlbertError, match=r"`version`=.* must be an integer from 1"):
        albert_tf.export_saved_model("albert_tiny_books", str(tmp_path), version=version)


@pytest.mark.parametrize(
    ("path", "name"),
    [("exports/rte", "rte"), ("models/rte/12/", "rte/12"), ("gs://b/m/1", "m/1"), ("1", "1")],
)
def test_the_name_of_a_version_includes_its_model(path, name):
    assert export_name(path) == name
