# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_pretraining.py as its user runs it: its output, its files, its exit status."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data_prep.pretraining_build import build_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.scripts import run_pretraining
from tests.support.builders import tiny_config, vocabulary, write_tokenizer

MASKED = Path(__file__).parent / "golden/tf1_records/pretrain_128.tfrecord"
WORDS = [f"w{i}" for i in range(95)]
CONFIG = tiny_config(
    30000, embedding_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    max_position_embeddings=512, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
).to_dict()  # fmt: skip
COMPACT_CONFIG = {**CONFIG, "vocab_size": len(vocabulary(WORDS))}


@pytest.fixture
def run(run_script):
    """Runs the script; `records` are a file of masked records or a folder of compact ones."""

    def run(folder, *flags, records=MASKED, config=None):
        path = folder / "config.json"
        path.write_text(json.dumps(config or (COMPACT_CONFIG if records.is_dir() else CONFIG)))
        return run_script(
            run_pretraining,
            f"--input_file={records}",
            f"--albert_config_file={path}",
            f"--output_dir={folder / 'run'}",
            "--train_batch_size=8",
            "--num_train_steps=16",
            "--num_warmup_steps=4",
            "--save_checkpoints_steps=4",
            "--log_every_steps=4",
            *flags,
        )

    return run


def build_compact(folder, lines, max_seq_length=32):
    """Builds compact records in a new folder; returns their folder."""
    folder.mkdir()
    rng = np.random.default_rng(lines)
    tokenizer = write_tokenizer(folder, WORDS)
    texts = [" ".join(rng.choice(WORDS, 9)) if i % 20 else "" for i in range(lines)]
    (folder / "text.txt").write_text("\n".join(texts))
    options = PretrainingOptions(max_seq_length=max_seq_length, record_format="compact")
    text, output = str(folder / "text.txt"), folder / "records"
    build_pretraining_data([text], tokenizer, str(output), options)
    return output


@pytest.fixture(scope="module")
def compact(tmp_path_factory):
    """A folder of compact records."""
    return build_compact(tmp_path_factory.mktemp("compact") / "data", 400)


def metrics(folder):
    return [json.loads(x) for x in (folder / "run/metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished():
    """Folder and output of the run below, which is made once and never changed."""
    return []


@pytest.fixture
def trained(finished, run, tmp_path_factory, compact):
    """A run on compact records, evaluated on others."""
    if not finished:
        folder = tmp_path_factory.mktemp("trained")
        build_compact(folder / "text", 300).rename(folder / "heldout")
        done = run(
            folder,
            f"--eval_input_file={folder / 'heldout'}",
            "--do_eval",
            "--eval_every_steps=8",
            records=compact,
        )
        assert done.returncode == 0, done.stderr
        finished.extend([folder, done])
    return finished


def test_training_and_evaluation_leave_results_and_a_usable_folder(trained):
    tmp_path, done = trained
    folder = tmp_path / "run"
    use = f'\n  albert fill-mask {folder} "A [MASK] text."\n  albert export --albert_directory='
    assert f"{use}{folder} \\\n    --export_path={folder}-export\n" in done.stdout
    results = json.loads((folder / "eval_results.json").read_text())
    assert set(results) == {
        "loss",
        "masked_lm_loss",
        "masked_lm_accuracy",
        "masked_lm_majority",
        "sentence_order_loss",
        "sentence_order_accuracy",
        "sentence_order_majority",
    }
    names = {p.name for p in folder.iterdir()}
    assert {"albert_config.json", "run_config.json", "metrics.jsonl", "best"} <= names
    last = [x for x in metrics(tmp_path) if x["split"] == "train"][-1]
    assert last["step"] == 16
    assert {
        "examples_per_second",
        "tokens_per_second",
        "padding_share",
        "input_wait_share",
        "learning_rate",
        "gradient_norm",
    } <= set(last)
    assert [*folder.glob("events/train/*tfevents*")]
    assert "peak learning rate 7.78e-05" in done.stdout  # Scaled with the batch.


def test_compact_records_give_the_same_results_in_every_evaluation(run, tmp_path, trained, compact):
    shutil.copytree(trained[0] / "run", tmp_path / "run")
    flags = [f"--eval_input_file={trained[0] / 'heldout'}", "--do_eval"]
    results = tmp_path / "run/eval_results.json"
    expected = json.loads(results.read_text())
    results.unlink()
    flags += ["--do_train=false", "--eval_batch_size=7"]
    again = run(tmp_path, *flags, records=compact)
    assert again.returncode == 0, again.stderr
    assert json.loads(results.read_text()) == pytest.approx(expected, rel=1e-5)
    other = [f"--init_checkpoint={tmp_path / 'run'}", f"--output_dir={tmp_path / 'other'}"]
    assert run(tmp_path, *flags, *other, records=compact).returncode == 0
    found = json.loads((tmp_path / "other/eval_results.json").read_text())
    assert found == pytest.approx(expected, rel=1e-5)
    part = run(tmp_path, *flags, "--max_eval_steps=2", records=compact)
    number = re.search(r"Evaluating on the first 14 of (\d+) held-out examples", part.stdout)[1]
    assert json.loads(results.read_text())["evaluated_share"] == pytest.approx(14 / int(number))


def test_a_run_from_another_runs_weights_starts_at_step_0_and_warns_of_a_long_warm_up(
    run, tmp_path, trained, compact
):
    done = run(
        tmp_path,
        f"--init_checkpoint={trained[0] / 'run'}",
        "--random_seed=2147483647",
        "--num_train_steps=4",
        "--num_warmup_steps=3125",
        records=compact,
    )
    assert done.returncode == 0, done.stderr
    assert "32 variables matched" in done.stdout
    assert [line["step"] for line in metrics(tmp_path)] == [1, 4]
    text = " ".join(done.stdout.split())
    assert "Warning: the warm-up ends at step 3,125, but training ends at step 4:" in text


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--input_file=/nowhere/*.tfrecord"], "No record file matches '/nowhere/*.tfrecord'"),
        (["--init_checkpoint=/nowhere"], "There is no checkpoint at /nowhere"),
        (["--do_eval"], "--do_eval needs --eval_input_file"),
        (["--eval_input_file=x"], "--eval_input_file would be ignored: without --do_eval"),
        (["--strategy=tpu"], "TPUs not found in the cluster"),
        (["--max_seq_length=64"], "have max_seq_length=128, not 64"),
        (
            ["--neighbor_attention", "--init_checkpoint=albert_tiny_books"],
            "--neighbor_attention is for random weights",
        ),
        (["--shallow_layers=9", "--num_shallow_steps=1"], "cannot be trained with 9 layers;"),
        (["--shallow_layers=1", "--num_shallow_steps=99"], "=99 must be less than the 16 steps"),
        (["--time_budget=60"], "would be ignored: --time_budget plans it"),
    ],
)
def test_wrong_flags_are_one_sentence_and_leave_nothing(run, tmp_path, flags, sentence):
    done = run(tmp_path, *flags)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({**CONFIG, "num_attention_heads": 5}, "not a multiple of num_attention_heads 5"),
        ({**CONFIG, "max_position_embeddings": 64}, "max_position_embeddings=64"),
        ({**CONFIG, "num_attention_heads": 32}, "--neighbor_attention needs heads of size 2"),
    ],
)
def test_a_wrong_configuration_is_one_sentence(run, tmp_path, config, sentence):
    done = run(tmp_path, "--neighbor_attention", config=config)
    assert done.returncode == 1
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_within_a_time_follows_its_plan_and_is_resumed_by_it(run_script, tmp_path):
    for name, lines in (("train", 2800), ("heldout", 200)):
        build_compact(tmp_path / name, lines, max_seq_length=64)
    config = tiny_config(
        len(vocabulary(WORDS)), embedding_size=16, hidden_size=32, intermediate_size=64,
        max_position_embeddings=64, num_hidden_layers=4,
    )  # fmt: skip
    config.to_json(str(tmp_path / "config.json"))
    run = tmp_path / "run"
    command = [
        run_pretraining, f"--input_file={tmp_path / 'train/records'}", f"--output_dir={run}",
        f"--albert_config_file={tmp_path / 'config.json'}", "--log_every_steps=1", "--do_train",
        f"--eval_input_file={tmp_path / 'heldout/records'}", "--do_eval",
        "--eval_every_steps=100000", "--early_stopping_evals=3",
    ]  # fmt: skip
    began = time.monotonic()
    done = run_script(*command, "--time_budget=1")
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert 30 < took < 120
    planned = json.loads((run / "run_config.json").read_text())
    steps, shallow_steps = planned["train"]["max_steps"], planned["run"]["num_shallow_steps"]
    assert planned["run"]["time_budget"] == 1 and planned["task"]["neighbor_attention"]
    assert planned["run"]["shallow_layers"] == 2 and 0 < shallow_steps < steps
    assert f"(layers in the first {shallow_steps:,}: 2)" in done.stdout
    assert metrics(tmp_path)[-1]["step"] == steps
    again = run_script(*command, "--time_budget=1")
    assert again.returncode == 0 and "is already trained to step" in again.stdout
    files = sorted(run.rglob("*"))
    other = run_script(*command, "--time_budget=2")
    assert other.returncode == 1 and "--time_budget=1.0 there, 2.0 here" in other.stderr
    (run / "run_config.json").rename(tmp_path / "run_config.json")
    lost = run_script(*command, "--time_budget=1")
    assert lost.returncode == 1 and "but no run_config.json" in lost.stderr
    assert "Measuring" not in other.stdout + lost.stdout
    assert sorted(run.rglob("*")) == [path for path in files if path.name != "run_config.json"]
