# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plots: their data, and that they are drawn."""

from __future__ import annotations

import json
import struct
import sys

import pytest

from albert_tf.errors import AlbertError
from albert_tf.training.monitors import read_metrics
from benchmarks.paper.plots import curve, save_evaluations, span_shares
from data_prep.pretraining_options import PretrainingOptions
from tests.benchmarks.paper.conftest import sentences
from tests.support import corpora

pytestmark = pytest.mark.tooling


@pytest.fixture
def run_dir(tmp_path):
    """A run's folder with three steps of training, one without values, and one evaluation."""
    names = ("loss", "masked_lm_accuracy", "sentence_order_accuracy", "tokens_per_second")
    entries = [
        {"step": step, "split": split, **dict.fromkeys(names, value)}
        for step, split, value in (
            (1, "train", 0.1), (2, "train", None), (3, "train", 0.3), (3, "eval", 0.2),
        )
    ]  # fmt: skip
    del entries[0]["tokens_per_second"]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in entries) + '{"st')
    return folder


def test_a_curve_has_the_finite_values_of_its_split(run_dir):
    entries = read_metrics(str(run_dir))
    assert len(entries) == 4
    assert curve(entries, "train", "loss") == ([1, 3], [0.1, 0.3])
    assert curve(entries, "eval", "loss") == ([3], [0.2])
    assert curve(entries, "train", "tokens_per_second") == ([3], [0.3])


@pytest.fixture
def build(tmp_path, vocabulary):
    def build(name, **options):
        text, folder = tmp_path / "text.txt", str(tmp_path / name)
        text.write_text("\n\n".join("\n".join(sentences(20, seed)) for seed in range(20)))
        options = PretrainingOptions(max_seq_length=64, dupe_factor=1, **options)
        corpora.build(str(text), vocabulary, folder, options)
        return folder

    return build


def test_span_shares_are_compared_with_their_distribution(build):
    shares, drawn = span_shares(build("records"))
    assert drawn == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    assert len(shares) == 3 and sum(shares) == pytest.approx(1, abs=1e-5)
    assert shares == sorted(shares, reverse=True)
    _, drawn = span_shares(build("longer", favor_shorter_ngram=False, ngram=2))
    assert drawn == pytest.approx([1 / 3, 2 / 3])


def test_compact_records_have_no_span_shares(build):
    with pytest.raises(AlbertError, match="only of pretraining records built with"):
        span_shares(build("compact", record_format="compact"))


def test_a_file_of_another_kind_is_refused(run_command, tmp_path):
    (tmp_path / "x.json").write_text('{"experiment": "table5"}')
    flags = [f"--figure1={tmp_path / 'x.json'}", f"--output_dir={tmp_path / 'out'}"]
    done = run_command("plots", *flags)
    assert done.returncode == 1 and "was not written by the command figure1" in done.stderr
    done = run_command("plots", flags[1])
    assert done.returncode == 1 and "There is nothing to draw" in done.stderr


def test_without_matplotlib_one_sentence_says_how_to_install_it(
    run_command, run_dir, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run_command("plots", f"--runs=a={run_dir}", f"--output_dir={tmp_path / 'out'}")
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert "install it with `pip install matplotlib`." in done.stderr


def test_a_table_without_matplotlib_or_without_models_has_no_plot(tmp_path, monkeypatch, capsys):
    path = str(tmp_path / "table.png")
    document = {"table": "table1", "title": "Table 1", "rows": [{"name": "a"}], "curves": {}}
    assert save_evaluations(document, path) is None
    document["curves"] = {"a": [{"step": 1, "masked_lm_accuracy": 0.1}]}
    assert save_evaluations(document, path) == "table.png"
    (tmp_path / "table.png").unlink()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert save_evaluations(document, path) is None
    assert "No plot of table1: Plots need matplotlib" in capsys.readouterr().out
    assert not (tmp_path / "table.png").exists()


def test_everything_is_drawn_800_pixels_wide(run_command, run_dir, build, tmp_path):
    layers = [{"layer": n, "l2_distance": 3.0 * n, "angle": 10.0 * n} for n in (1, 2)]
    result = {"experiment": "figure1", "models": [{"name": "ALBERT", "layers": layers}]}
    (tmp_path / "figure1.json").write_text(json.dumps(result))
    run_command(
        "plots",
        f"--runs=a={run_dir},b={run_dir}",
        f"--records=sop={build('records')}",
        f"--figure1={tmp_path / 'figure1.json'}",
        f"--output_dir={tmp_path / 'out'}",
    ).ok()
    sizes = {}
    for path in (tmp_path / "out").iterdir():
        head = path.read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        sizes[path.stem] = struct.unpack(">II", head[16:])[0]
    names = ("learning_curves", "figure2", "throughput", "ngrams", "figure1")
    assert sorted(sizes) == sorted(names)
    assert all(780 <= width <= 830 for width in sizes.values())
