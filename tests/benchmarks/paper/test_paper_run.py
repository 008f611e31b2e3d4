# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""An experiment from text to table with real commands; values and layout of the tables."""

import json
import re
from pathlib import Path

import pytest

from albert_tf.config import AlbertConfig
from benchmarks.paper import __main__ as kit
from benchmarks.paper.recipes import FOLDER
from benchmarks.paper.tables import markdown

pytestmark = pytest.mark.tooling

ROOT = Path(__file__).resolve().parents[3]
SHAPE = {"num_hidden_layers": 2, "hidden_size": 32, "embedding_size": 8}
ROWS = [
    {"name": "all-shared", "parts": [], "published": {"parameters": 12, "mlm": 54.0}},
    # The same model, so it is trained only once.
    {"name": "again", "parts": [], "config": {"parameter_sharing": "all"}},
]


@pytest.fixture
def recipes(tmp_path):
    """A folder with one recipe: two rows with a model of two layers and five steps."""
    defaults = json.loads(Path(FOLDER, "defaults.json").read_text())
    tiny = defaults["scales"]["tiny"]
    tiny["vocabulary"] = {"vocab_size": 300}
    tiny["records"] = {"max_seq_length": 32, "random_seed": 1}
    tiny["row"]["text"] = {}
    tiny["row"]["config"] = {**SHAPE, "max_position_embeddings": 32}
    steps = {"num_train_steps": 5, "num_warmup_steps": 1, "train_batch_size": 4}
    tiny["row"]["pretraining"] = {**steps, "eval_every_steps": 3}
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "defaults.json").write_text(json.dumps(defaults))
    columns = ["parameters", "mlm", "sop", "sst-2"]
    recipe = {"title": "Table 1", "section": "3", "columns": columns, "rows": ROWS}
    (folder / "table1.json").write_text(json.dumps(recipe))
    return folder


@pytest.fixture
def text(tmp_path):
    """80 documents of 6 sentences from a book."""
    book = (ROOT / "demo/data/books/train/doyle.txt").read_text("utf-8")
    sentences = [s for s in re.split(r"(?<=[.?!])\s+", " ".join(book.split())) if len(s) > 20]
    documents = ["\n".join(sentences[6 * n : 6 * n + 6]) for n in range(80)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    return tmp_path / "text.txt"


def test_an_experiment_runs_from_text_to_table_and_is_reused(
    recipes, text, tmp_path, run_script, monkeypatch
):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("ALBERT_DATA_DIR", raising=False)
    command = ["table1", f"--recipes={recipes}", f"--text={text}", f"--output_dir={tmp_path}/out"]
    printed = run_script(kit, *command, "--norun", "--columns=parameters,mlm,sop").ok()
    assert printed.stdout.count("\npython ") == 5
    assert not (tmp_path / "out/tiny/text").exists()

    done = run_script(kit, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out/tiny/tables/table1.json").read_text())
    first, second = document["rows"]
    assert first["model"] == second["model"]
    config = AlbertConfig(300, 8, 32, 2, 1, 128, max_position_embeddings=32)
    assert first["config"] == config.to_dict()
    assert first["ours"]["parameters"] == config.count_parameters()["encoder"]
    for row in document["rows"]:
        found = json.loads(Path(row["model"], "eval_results.json").read_text())
        assert row["ours"]["mlm"] == 100 * found["masked_lm_accuracy"]
        assert row["ours"]["sop"] == 100 * found["sentence_order_accuracy"]
        assert "sst-2" not in row["ours"]
        curve = document["curves"][row["name"]]
        assert [entry["step"] for entry in curve] == [3, 5]
    assert document["missing"] == {"SST-2": "no --data_dir was given"}
    assert len(document["commands"]) == 5
    mlm, sop = (f"{first['ours'][name]:.1f}" for name in ("mlm", "sop"))
    page = (tmp_path / "out/tiny/tables/table1.md").read_text()
    millions = f"{first['ours']['parameters'] / 1e6:.2f}M"
    assert f"| all-shared | ours | {millions} | {mlm} | {sop} | – |" in page
    assert "|  | paper | 12M | 54.0 | – | – |" in page
    assert "- SST-2: no --data_dir was given." in page
    assert "](table1.png)" in page
    assert (tmp_path / "out/tiny/tables/table1.png").read_bytes().startswith(b"\x89PNG")

    document["rows"] = [{**row, "ours": {"parameters": 1, "mlm": 2.0}} for row in document["rows"]]
    assert "- SOP: not run." in markdown(document)
    document = json.loads((tmp_path / "out/tiny/tables/table1.json").read_text())

    again = run_script(kit, *command).ok()
    assert again.stdout.count("finished before, reused") == 5
    assert json.loads((tmp_path / "out/tiny/tables/table1.json").read_text()) == document
