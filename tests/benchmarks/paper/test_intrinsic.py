# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The development set with the text of SQuAD and RACE, and accuracies on it."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path

import pytest

import run_pretraining
from albert_tf.data.manifest import Manifest
from benchmarks.paper.corpus import documents
from benchmarks.paper.intrinsic import development_documents, table
from tests.benchmarks.paper.conftest import sentences

pytestmark = pytest.mark.tooling

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("ALBERT_DATA_DIR", ROOT.parent / "shared" / "data"))


def write_squad(path, articles):
    data = [
        {"title": title, "paragraphs": [{"context": text, "qas": []} for text in texts]}
        for title, texts in articles.items()
    ]
    path.write_text(json.dumps({"data": data, "version": "1.1"}))


def write_race(folder, articles):
    for group in ("middle", "high"):
        (folder / "dev" / group).mkdir(parents=True)
    for number, article in enumerate(articles):
        path = folder / "dev" / ("high", "middle")[number % 2] / f"{number}.txt"
        options = [["a", "b", "c", "d"]] * 2
        questions = {"questions": ["?", "??"], "options": options, "answers": ["A", "B"]}
        path.write_text(json.dumps({"id": path.name, "article": article, **questions}))


def test_a_document_is_an_article_and_repeated_text_is_left_out(tmp_path):
    write_squad(tmp_path / "1.json", {"X": ["One.", "Two.  Three."], "Y": ["Four.\nFive."]})
    write_squad(tmp_path / "2.json", {"X": ["Two. Three. ", "Six."], "Z": ["One."]})
    write_race(tmp_path / "race", ["Seven.\n\nOne.", "Eight.", "Seven. One.", "Four. Five."])
    paths = [str(tmp_path / name) for name in ("1.json", "2.json")]
    assert development_documents(paths, str(tmp_path / "race")) == {
        "squad": [["One.", "Two. Three.", "Six."], ["Four.", "Five."]],
        "race": [["Eight."], ["Seven.", "One."]],
    }


@pytest.fixture
def flags(tmp_path):
    """Flags for the paths of the text and the results."""
    texts = [sentences(12, seed) for seed in range(16)]
    squad = {f"T{n}": [" ".join(t[:6]), " ".join(t[6:])] for n, t in enumerate(texts[:8])}
    write_squad(tmp_path / "squad.json", squad)
    write_race(tmp_path / "race", [f"{' '.join(t[:6])}\n{' '.join(t[6:])}" for t in texts[8:]])
    return [
        f"--squad_files={tmp_path / 'squad.json'}",
        f"--race_dir={tmp_path / 'race'}",
        f"--output_dir={tmp_path / 'out'}",
        "--max_seq_length=32",
    ]


def test_accuracies_equal_those_of_run_pretraining(
    run_command, run_script, save_model, flags, tmp_path
):
    model = save_model("model")
    done = run_command("intrinsic", f"--checkpoints=random={model}", *flags).ok()
    result = json.loads((tmp_path / "out/intrinsic.json").read_text())
    assert result["corpus"]["documents"] == {"squad": 8, "race": 8}
    found = list(documents(str(tmp_path / "out/text.txt")))
    assert len(found) == 16
    assert sorted(chain.from_iterable(found)) == sorted(
        sentence for seed in range(16) for sentence in sentences(12, seed)
    )
    (found,) = result["models"]
    (records,) = (tmp_path / "out").glob("records_32_*")
    for objective in ("sop", "nsp"):
        manifest = Manifest.load(str(records / objective))
        assert manifest.options["sentence_objective"] == objective
        assert manifest.options["dupe_factor"] == 1
        assert manifest.num_examples == found[objective]["examples"]
        ones = manifest.statistics["label_1_share"]
        assert found[objective]["constant_answer"] == max(ones, 1 - ones)
    run_script(
        run_pretraining,
        "--nodo_train",
        "--do_eval",
        f"--init_checkpoint={model}",
        f"--albert_config_file={model / 'albert_config.json'}",
        f"--input_file={records / 'sop'}",
        f"--eval_input_file={records / 'nsp'}",
        f"--output_dir={tmp_path / 'run'}",
    ).ok()
    expected = json.loads((tmp_path / "run/eval_results.json").read_text())
    for ours, theirs in (("masked_lm", "masked_lm"), ("sentence", "sentence_order")):
        for metric in ("loss", "accuracy"):
            value = found["nsp"][f"{ours}_{metric}"]
            assert value == pytest.approx(expected[f"{theirs}_{metric}"], rel=1e-5)
    assert found["sop"]["sentence_loss"] != found["nsp"]["sentence_loss"]
    shown = table(result["models"])
    assert shown in done.stdout and all(len(line) <= 80 for line in shown.splitlines())
    assert f"{found['nsp']['sentence_accuracy']:.1%}" in shown.splitlines()[1]


def test_records_are_built_once_per_vocabulary_and_from_one_text(
    run_command, vocabulary, flags, tmp_path
):
    def run():
        done = run_command("intrinsic", f"--vocab_file={vocabulary}", *flags)
        made = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.tfrecord")}
        return done, made

    first, made = run()
    assert first.returncode == 0 and made, first.stderr
    again, same = run()
    assert again.returncode == 0 and same == made
    write_squad(tmp_path / "squad.json", {"X": ["Other text. And more."]})
    other, left = run()
    assert other.returncode == 1 and left == made
    assert "holds the text of other development sets; choose another folder" in other.stderr


def test_missing_tokenizers_and_flags_are_reported(run_command, save_model, flags, tmp_path):
    model = save_model("model", with_tokenizer=False)
    for given, message in (
        ([f"--checkpoints=a={model}"], f"There is no tokenizer with {model}; give --vocab_file."),
        ([], "Give --checkpoints, or --vocab_file to build records alone."),
    ):
        done = run_command("intrinsic", *given, *flags)
        assert done.returncode == 1 and f"error: {message}" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.realdata
def test_the_real_development_sets_have_48_and_1389_documents():
    if not (DATA / "squad").exists():
        pytest.skip(f"{DATA} has no SQuAD (set ALBERT_DATA_DIR)")
    paths = [str(DATA / "squad" / name) for name in ("dev-v1.1.json", "dev-v2.0.json")]
    found = development_documents(paths, str(DATA / "race"))
    # Version 2.0 has no paragraph that 1.1 has not.
    assert found["squad"] == development_documents(paths[:1], str(DATA / "race"))["squad"]
    assert {origin: len(texts) for origin, texts in found.items()} == {"squad": 48, "race": 1389}
