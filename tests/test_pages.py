# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The code on README and the pages in docs runs as pasted, on small files and models.

Settings that take long are replaced.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.weights.checkpoint import write_tf2
from tests.support import stand_ins
from tests.support.pages import ROOT, code_blocks, replaced, run_page, run_python_blocks
from tests.support.releases import write_archive
from tests.support.small_tasks import squad_content
from tests.support.weights import weights_of

GLUE = ("cola", "sst-2", "sts-b", "rte", "wnli")


def page(name):
    return (ROOT / ("README.md" if name == "README" else f"docs/{name}.md")).read_text("utf-8")


def read(path):
    return json.loads(path.read_text())


def write_squad(folder):
    for version in ("1.1", "2.0"):
        content = stand_ins.squad_file(version)
        for part in ("train", "dev"):
            (folder / f"{part}-v{version}.json").write_text(json.dumps(content))
            content["data"][0]["paragraphs"].pop()


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    stand_ins.write_pretrained(tmp_path / "runs/base")
    stand_ins.write_glue(tmp_path / "glue", GLUE[1:3])
    stand_ins.write_race(tmp_path / "RACE")
    write_squad(tmp_path)
    output = "--output_dir=runs/"
    shorter = {
        f"{output}{name}": f"{output}{name} --train_step=2" for name in ("glue", "squad", "race")
    }
    skip = (
        "make demo",  # tests/test_any_file_system.py runs the same.
        "make setup",  # It makes the environment that runs this.
        "albert sample-data    # train.tsv",  # In test_wheel.py.
    )
    printed = run_page(replaced(page("README"), shorter), tmp_path, python=False, skip=skip)
    assert "average" in printed.partition("GLUE, dev")[2]
    assert "exact" in read(tmp_path / "runs/squad/eval_results.json")
    assert (tmp_path / "runs/race/predictions.tsv").exists()


@pytest.mark.slow
def test_the_commands_of_albert_run(tmp_path):
    stand_ins.write_classifier(tmp_path / "runs/rte", ("entailment", "not_entailment"))
    stand_ins.write_squad_run(tmp_path / "runs/squad")
    stand_ins.write_race_run(tmp_path / "runs/race")
    stand_ins.write_tagger_run(tmp_path / "runs/ner")
    (tmp_path / "questions.csv").write_text('question,context\nWho wrote it?,"Ada, in 1843."\n')
    for name in ("texts.txt", "article.txt"):
        (tmp_path / name).write_text("Ada wrote it.\nIn 1843.\n")
    with gzip.open(tmp_path / "reviews.txt.gz", "wt") as f:
        f.write("A fine book.\nA dull one.\n")
    shorter = {"--num_train_epochs=10": "--train_step=2"}
    run_page(replaced(page("command_line"), shorter), tmp_path, python=False)
    assert np.load(tmp_path / "vectors.npy").shape == (2, 256)
    assert len((tmp_path / "labels.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_the_page_about_fine_tuning_runs(tmp_path):
    text = page("finetuning")
    stand_ins.write_pretrained(tmp_path / "runs/base")
    stand_ins.write_squad_run(tmp_path / "runs/squad")
    stand_ins.write_glue(tmp_path / "glue", GLUE)
    stand_ins.write_race(tmp_path / "race")
    shutil.copy(stand_ins.VOCABULARY, tmp_path / "30k-clean.model")
    write_squad(tmp_path)
    paragraph = {"context": "Ada wrote it.", "qas": [{"id": "n", "question": "Who wrote it?"}]}
    new = {"version": "2.0", "data": [{"title": "T", "paragraphs": [paragraph]}]}
    (tmp_path / "new.json").write_text(json.dumps(new))
    answers = {f"{kind}{i}": "sea" for kind in "qn" for i in range(21)}
    (tmp_path / "predictions.json").write_text(json.dumps(answers))
    (row,) = [code for language, code in code_blocks(text) if language == "json"]
    pairs = "question,answer,score\nWho?,Ada.,1\nWhen?,Now.,2.5\nWhy?,It is.,4\n"
    (tmp_path / "train.jsonl").write_text(f"{row}\n{row}")
    (tmp_path / "dev.jsonl").write_text(row)
    (tmp_path / "pairs.csv").write_text(pairs)
    (tmp_path / "dev.csv").write_text(f"{pairs}How?,So.,3\n")
    shorter = {
        "--train_step=150 --eval_every_steps=50": "--train_step=4 --eval_every_steps=2",
        "--train_step=1500": "--train_step=2",
        ".first44articles": "",
        "--num_train_epochs=3": "--train_step=2",
        "--num_train_epochs=2 \\\n    --eval_every_steps=100": "--train_step=2",
        "--output_dir=runs/score": "--output_dir=runs/score --train_step=2",
        "--output_dir=runs/mine": "--output_dir=runs/mine --train_step=2",
    }
    run_page(replaced(text, shorter), tmp_path, python=False)
    assert "pearson" in read(tmp_path / "runs/score/eval_results.json")


@pytest.mark.slow
def test_the_page_about_exports_runs(tmp_path, monkeypatch):
    text = page("export")
    stand_ins.write_pretrained(tmp_path / "runs/base")
    stand_ins.write_squad_run(tmp_path / "runs/squad")
    stand_ins.write_classifier(tmp_path / "runs/authors")
    # ONEDNN: a setting of any process; only speed changes.
    skip = ("pip install", "export TF_ONEDNN_ASSUME_FROZEN_WEIGHTS")
    run_page(text, tmp_path, python=False, skip=skip)
    monkeypatch.chdir(tmp_path)
    given = {
        "first": ["A text."],
        "second": ["Another one."],
        "inputs": {
            f"input_{name}": tf.ones([1, 4], tf.int32) for name in ("word_ids", "mask", "type_ids")
        },
        "positions": tf.constant([[1, 2]]),
        "tokenizer": stand_ins.tokenizer(),
    }
    if not importlib.util.find_spec("ai_edge_litert"):
        module = "from tensorflow.lite.python.interpreter"
        text = replaced(text, {"from ai_edge_litert.interpreter": module})
    pytest.importorskip("tokenizers")
    names, printed = run_python_blocks(text, given)
    assert printed.splitlines()[-1] in (tmp_path / "exports/onnx/labels.txt").read_text()
    assert len(names["probabilities"][0]) > 1


@pytest.mark.slow
def test_the_page_about_checkpoints_runs(tmp_path, hub, monkeypatch):
    write_archive(tmp_path / "albert_base_v2.tar.gz")
    pretrained = AlbertPretrainer(stand_ins.config())
    folder = tmp_path / "runs/demo/pretrained"
    write_tf2(str(folder), pretrained.config, stand_ins.tokenizer(), weights_of(pretrained))
    (tmp_path / "train.tsv").write_text("text\tlabel\nA\tx\nB\ty\n")
    paragraphs = "\n\n".join("\n".join(stand_ins.sentences()[i : i + 8]) for i in range(0, 480, 8))
    (tmp_path / "heldout.txt").write_text(paragraphs)
    shorter = {
        "pip install -e '.[hub]'\n": "",
        "--output_dir=runs/mine": "--output_dir=runs/mine --train_step=2 --max_seq_length=16",
    }
    skip = ("pip install", "python -m benchmarks.interchange")  # It needs other environments.
    run_page(replaced(page("checkpoints"), shorter), tmp_path, hub, python=False, skip=skip)
    monkeypatch.chdir(tmp_path)
    ones = np.ones([1, 4], np.int32)
    given = {"ids": ones, "mask": ones, "types": 0 * ones, "positions": ones[:, :2]}
    names, _ = run_python_blocks(page("checkpoints"), given)
    assert set(names["outputs"]) >= {"sequence_output", "mlm_logits", "sop_logits"}
    inputs = {"input_word_ids": ones, "input_mask": ones, "input_type_ids": 0 * ones}
    assert names["own"](inputs).shape == (1, 3)


@pytest.mark.slow
def test_the_guide_to_fine_tuning_runs(tmp_path, hub):
    shorter = {
        "--num_train_epochs=10 --eval_every_steps=20 --num_seeds=3": "--num_train_epochs=1 "
        "--num_seeds=2"
    }
    printed = run_page(replaced(page("guides/fine_tune"), shorter), tmp_path, hub)
    results = [
        read(tmp_path / f"runs/{x}/eval_results.json") for x in ("authors", "authors-python")
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
    (tmp_path / "questions.csv").write_text("question,context,answers\nWho?,It was Ada.,Ada\n")
    other = {"  --output_dir=runs/mine": "  --output_dir=runs/own"}
    printed = run_page(replaced(page("guides/question_answering"), other), tmp_path, hub)
    assert len(read(tmp_path / "runs/squad/predictions.json")) == 6
    # The third training starts from all weights of the second, also those of the head.
    assert printed.count("not in the checkpoint") == 3
    assert "not in the checkpoint" not in printed.rpartition("Fine-tuning for")[2]
    assert "'answerable': " in printed


@pytest.mark.slow
def test_the_guide_to_tags_runs(tmp_path):
    for name, count in (("train", 8), ("dev", 2), ("new", 1)):
        (tmp_path / f"{name}.txt").write_text("Ada B-PER\nlived O\nhere O\n\n" * count)
    shorter = {"--init_checkpoint=albert_small_books": "--train_step=2"}
    printed = run_page(replaced(page("guides/tagging"), shorter), tmp_path)
    assert '"entities": [' in printed
    assert (tmp_path / "runs/ner/predictions.txt").exists()


@pytest.mark.slow
def test_the_guide_to_adapting_a_model_runs(tmp_path):
    stand_ins.write_glue(tmp_path / "glue", ["sst-2"])
    books = (ROOT / "demo/data/books/heldout/doyle.txt").read_text("utf-8").split("\n\n")
    (tmp_path / "reviews.txt").write_text("".join(f"{' '.join(x.split())}\n" for x in books[:99]))
    shorter = {
        "--num_train_steps=1000 --num_warmup_steps=100": "--num_train_steps=2",
        "--train_step=500 --eval_every_steps=500": "--train_step=2",
        "--do_eval": "",  # All splits there have the same texts.
        "--vocab_size=9000": "--vocab_size=8010",
    }
    printed = run_page(replaced(page("guides/adapt"), shorter), tmp_path)
    assert "runs/extended: 10 new pieces." in printed
    assert read(tmp_path / "runs/sst-2/albert_config.json")["vocab_size"] == 8010


@pytest.mark.slow
def test_the_guide_to_search_runs(tmp_path):
    text = replaced(page("guides/search"), {"train_step=150": "train_step=2"})
    printed = run_page(text, tmp_path).splitlines()
    assert re.search(r"^TF-IDF .*", text, flags=re.M)[0] in printed


@pytest.mark.slow
def test_the_guide_to_pretraining_runs_on_a_small_text(tmp_path):
    for part, names in (("train", ("darwin", "doyle", "smith")), ("heldout", ("dickens",))):
        (tmp_path / "corpus" / part).mkdir(parents=True)
        for name in names:
            text = (ROOT / f"demo/data/books/heldout/{name}.txt").read_text("utf-8")
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
    printed = run_page(replaced(page("guides/pretrain_at_scale"), smaller), tmp_path)
    assert re.search(r"^[\d,]+ sequences per second: [\d,]+ hours$", printed, flags=re.M)
    split = {path.name.partition(".jsonl.gz")[0] for path in (tmp_path / "text/train").glob("*.gz")}
    assert split == {"darwin", "doyle", "smith"}
    assert (tmp_path / "runs/base/best").is_dir()


def test_the_blocks_about_pretrained_models_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = run_python_blocks(page("python").partition("\n## Train a classifier\n")[0])
    assert names["vectors"].shape == (4, 256)
    assert len(names["search"]("A ship at sea.")) == 2
    assert len(re.findall(r"^\('\w+',\) 0\.\d{3} It was the \w+ of times\.$", printed, re.M)) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_all_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = run_python_blocks(page("python"))
    assert names["classifier"].labels == ("Austen", "Melville")
    found = names["classifier"].predict(["The ship sailed on the sea.", "She danced at the ball."])
    assert [classified.label for classified in found] == ["Melville", "Austen"]
    texts = [row["sentence"] for row in names["train"]]
    classify = tf.saved_model.load("exports/authors")
    np.testing.assert_allclose(
        classify(texts)["probabilities"], names["classifier"].probabilities(texts), atol=1e-4
    )
    np.testing.assert_array_equal(*(names[x].probabilities(texts) for x in ("again", "classifier")))
    assert names["reader"].task.spec.doc_stride == 8
    assert np.isfinite(names["regressor"].predict(["A book."])).all()
    assert 0 < names["found"].probability <= 1
    assert len(names["chooser"].choose(["a", "b", "c"], "Which?").probabilities) == 3
    comment = re.search(r"print\(error\)  # (.*)", page("python"))[1]
    assert printed.splitlines().count(comment) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "exports"}
