# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The code blocks of docs/guides run, in their order, with small models and data."""

import gzip
import json
import re

import pytest

from tests.support.pages import ROOT, replaced, run_page
from tests.support.small_tasks import squad_content

GUIDES = ROOT / "docs/guides"
BOOKS = ROOT / "demo/data/books"
#: The share of searches that find a neighbour, in a line of the search guide's output.


def guide(name):
    return (GUIDES / f"{name}.md").read_text("utf-8")


@pytest.mark.slow
def test_the_guide_to_fine_tuning_runs(tmp_path, hub):
    shorter = {
        "--num_train_epochs=10 --eval_every_steps=20 --num_seeds=3": "--num_train_epochs=1 "
        "--num_seeds=2"
    }
    printed = run_page(replaced(guide("fine_tune"), shorter), tmp_path, hub)
    results = [
        json.loads((tmp_path / f"runs/{name}/eval_results.json").read_text())
        for name in ("authors", "authors-python")
    ]
    assert results[0]["accuracy"] == results[1]["accuracy"] > 0.3  # Of six authors.
    rows = (tmp_path / "runs/authors/predictions.tsv").read_text().splitlines()
    assert len(rows) == 481
    assert "accuracy of 2 seeds" in printed
    assert re.search(r"^\[b'\w+'\]$", printed, flags=re.M)


@pytest.mark.slow
def test_the_guide_to_question_answering_runs(tmp_path, hub):
    for part, examples in (("train", 24), ("dev", 6)):
        content = json.dumps(squad_content("2.0", examples))
        (tmp_path / f"{part}-v2.0.json").write_text(content)
    printed = run_page(guide("question_answering"), tmp_path, hub)
    assert len(json.loads((tmp_path / "runs/squad/predictions.json").read_text())) == 6
    # The second training starts from all weights of the first, also those of the head.
    assert "not in the checkpoint" in printed.partition("answerable: ")[0]
    assert "not in the checkpoint" not in printed.partition("answerable: ")[2]
    assert "'answerable': " in printed


@pytest.mark.slow
def test_the_guide_to_pretraining_runs_on_a_small_text(tmp_path):
    for part, names in (("train", ("darwin", "doyle", "smith")), ("heldout", ("dickens",))):
        (tmp_path / "corpus" / part).mkdir(parents=True)
        for name in names:
            text = (BOOKS / f"heldout/{name}.txt").read_text("utf-8")
            rows = (json.dumps({"text": chapter}) for chapter in text.split("\n\n\n"))
            with gzip.open(tmp_path / f"corpus/{part}/{name}.jsonl.gz", "wt") as f:
                f.write("\n".join(rows))
    smaller = {
        "--strategy=mirrored ": "",
        "albert_base_v2": "albert_test",
        "--max_seq_length=512": "--max_seq_length=64",
        "--vocab_size=30000": "--vocab_size=500",
        "--num_shards=64 --num_workers=16": "--num_shards=4 --num_workers=2",
        "--train_batch_size=4096 --gradient_accumulation_steps=16": "--train_batch_size=16 "
        "--gradient_accumulation_steps=2",
        "--num_train_steps=100 --num_warmup_steps=10 --log_every_steps=10": "--num_train_steps=6 "
        "--num_warmup_steps=1 --log_every_steps=2",
        "--num_train_steps=125000 --num_warmup_steps=3125": "--num_train_steps=4 "
        "--num_warmup_steps=1",
        "--eval_every_steps=5000": "--eval_every_steps=2",
        "--save_checkpoints_steps=1000": "--save_checkpoints_steps=2",
    }
    printed = run_page(replaced(guide("pretrain_at_scale"), smaller), tmp_path)
    assert re.search(r"^[\d,]+ sequences per second: [\d,]+ hours$", printed, flags=re.M)
    assert {path.name for path in (tmp_path / "text/train").iterdir()} >= {
        "darwin.jsonl.gz",
        "doyle.jsonl.gz",
        "smith.jsonl.gz",
    }
    assert (tmp_path / "runs/base/best").is_dir()
