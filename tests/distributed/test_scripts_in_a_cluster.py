# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The scripts as two processes with TF_CONFIG leave the files that one process leaves."""

from __future__ import annotations

import json
import re

import pytest

from tests.distributed.cluster import Cluster
from tests.distributed.worker import LENGTH, MODEL
from tests.support.small_tasks import PIECES, WORDS, open_small_task, squad_content

NUMBER = re.compile(r"(-?\d+\.\d+(?:e[-+]?\d+)?)")
TUNING = [
    "--do_train", "--do_eval", "--do_predict", "--train_step=6", "--warmup_step=2",
    "--learning_rate=0.01", "--eval_every_steps=3", "--train_batch_size=8", "--precision=float32",
    "--dropout=0", "--classifier_dropout=0", f"--max_seq_length={LENGTH}",
]  # fmt: skip


def write_files(folder, name, text, begin):
    """Writes a file to evaluate and predict, and one to train on, with a space more."""
    (folder / name).write_text(text)
    (folder / f"train-{name}").write_text(text.replace(begin, f"{begin} ", 1))
    names = {"train": f"train-{name}", "eval": name, "predict": name}
    return [f"--{action}_file={folder / name}" for action, name in names.items()]


def classifier(folder):
    """13 texts to train on, to evaluate on and to predict."""
    rows = [f"{' '.join(WORDS[i : i + 2 + i % 5])}\t{'xy'[i % 2]}" for i in range(13)]
    text = "text\tlabel\n" + "\n".join(rows) + "\n"
    files = write_files(folder, "texts.tsv", text, "text\tlabel\n")
    return ["run_classifier.py", *TUNING, *files], ["predictions.tsv"]


def race(folder):
    """13 questions; two seeds."""
    lines = [
        {"context": " ".join(WORDS[i : i + 8]), "question": WORDS[i], "options": WORDS[:3]}
        for i in range(13)
    ]
    text = "\n".join(json.dumps({**line, "label": i % 3}) for i, line in enumerate(lines))
    files = write_files(folder, "questions.jsonl", text, '"question": "')
    flags = ["--max_qa_length=6", "--num_seeds=2"]
    return ["run_race.py", *TUNING, *files, *flags], ["predictions.tsv", "seeds.json"]


def squad(folder):
    """13 questions, of which half have no answer."""
    text = json.dumps(squad_content("2.0", 13))
    files = write_files(folder, "squad.json", text, '"question": "')
    flags = ["--version=2.0", "--doc_stride=4", "--max_query_length=4"]
    written = ["predictions.json", "nbest_predictions.json", "null_odds.json", "thresholds.json"]
    return ["run_squad.py", *TUNING, *files, *flags], written


def pretraining(folder):
    """40 records to train on, 21 to evaluate on."""
    for examples in (40, 21):
        open_small_task("masked", MODEL, folder, examples=examples)
    flags = [
        f"--input_file={folder}/masked-40/shard-*", f"--eval_input_file={folder}/masked-21/shard-*",
        "--do_train", "--do_eval", "--num_train_steps=6", "--num_warmup_steps=2",
        "--learning_rate=0.01", "--eval_every_steps=3", "--train_batch_size=8",
        "--gradient_accumulation_steps=2",
    ]  # fmt: skip
    return ["run_pretraining.py", *flags], []


def command(make, folder):
    """The script and its flags, and what it writes besides the metrics."""
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    MODEL.to_json(str(folder / "config.json"))
    parts, written = make(folder)
    parts += [f"--albert_config_file={folder}/config.json", "--eval_batch_size=8"]
    if make is not pretraining:
        parts += [f"--vocab_file={folder}/vocab.txt"]
    return parts, ["eval_results.json", *written]


def files_of(folder):
    """The bytes of all files by their names, those of events without the time in them."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {
        re.sub(r"tfevents.*", "tfevents", str(path.relative_to(folder))): path.read_bytes()
        for path in paths
    }


def assert_alike(actual, expected):
    """The same texts, and numbers that differ little."""
    # Weights that differ in their last digits have another checksum.
    texts = [re.sub(r'"crc32": \d+', "", content.decode()) for content in (actual, expected)]
    a, b = map(NUMBER.split, texts)
    assert a[::2] == b[::2]
    assert list(map(float, a[1::2])) == pytest.approx(list(map(float, b[1::2])), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("make", [classifier, race, squad, pretraining])
def test_two_processes_leave_the_files_of_one(make, tmp_path, run_process):
    script, written = command(make, tmp_path)
    alone, together = tmp_path / "alone", tmp_path / "together"
    module = script[0].removesuffix(".py")
    done = run_process(module, *script[1:], f"--output_dir={alone}")
    assert done.returncode == 0, done.stderr
    flags = ["--strategy=multi_worker", f"--output_dir={together}"]
    exits = Cluster([*script, *flags], tmp_path / "2").run()
    assert "Written to" in exits[0].stdout and "Written to" not in exits[1].stdout
    expected, actual = files_of(alone), files_of(together)
    assert actual.keys() == expected.keys() and set(written) <= actual.keys()
    texts = [name for name in expected if name.endswith((".json", ".tsv")) or name in written]
    for name in texts:
        assert_alike(actual[name], expected[name])
    print(f"{make.__name__}: {len(actual)} files, {len(texts)} of them compared as text")


@pytest.mark.slow
def test_all_workers_end_if_the_chief_is_refused(tmp_path, hold):
    script, _ = command(pretraining, tmp_path)
    output = tmp_path / "run"
    flags = ["--strategy=multi_worker", f"--output_dir={output}"]
    with hold(output), Cluster([*script, *flags], tmp_path / "refused") as cluster:
        chief, other = cluster.wait(timeout=120)
    assert (chief.returncode, other.returncode) == (1, 1)
    assert f"error: {output} is in use by process " in chief.stderr
    assert f"error: The chief of this cluster could not lock {output}; " in other.stderr
