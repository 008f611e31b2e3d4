# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks.gpu_step: the emitted step, run by JAX's client on the CPU."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.errors import AlbertError
from albert_tf.training.monitors import read_metrics
from albert_tf.weights.load import open_source
from benchmarks.gpu_step import emit, pretrain, program, run, traffic
from benchmarks.gpu_step.cards import CARDS, peak_flops, target_config
from benchmarks.gpu_step.program import SLOT, STEP, WEIGHT, Parameter, Program
from benchmarks.peers import protocol
from benchmarks.random_step import predictions_of, random_columns
from tests.support.builders import tiny_config
from tests.support.device_side import ROOT, needs_jax, run_here, run_with_jax

pytestmark = pytest.mark.tooling

CUDA_PYTHON = os.environ.get("JAX_CUDA_PYTHON", str(ROOT / ".venv-peers/cuda/bin/python"))
CONFIG = tiny_config(100)
LENGTH, ROWS = 16, 4
SCHEDULE = {"learning_rate": 0.01, "num_train_steps": 10, "num_warmup_steps": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records, and a program of them with a reference of four steps, in "check"."""
    folder = tmp_path_factory.mktemp("gpu_step")
    CONFIG.to_json(str(folder / "config.json"))
    layout = records.pretraining_features(LENGTH, predictions_of(LENGTH))
    examples = records.encode_examples(random_columns(CONFIG, LENGTH, 6 * ROWS), layout)
    records.write_shard(str(folder / "a.tfrecord"), examples)
    shape = emit.Shape(str(folder / "config.json"), LENGTH, ROWS)
    options = emit.Options(SCHEDULE, input_file=str(folder / "a.tfrecord"))
    emit.emit(shape, str(folder / "programs/check"), options, reference_steps=4)
    emit.emit(shape, str(folder / "programs/00_tiny"), options)
    return folder


def test_a_program_takes_the_batch_and_the_state_and_returns_the_state(folder):
    loaded = Program.load(str(folder / "programs/check"))
    kinds = [p.kind for p in loaded.parameters]
    assert kinds[: kinds.index(STEP)] == [program.BATCH] * 7
    assert len(loaded.of_kind(SLOT)) == 2 * len(loaded.of_kind(WEIGHT)) > 40
    replaced = [loaded.parameters[i].name for i in loaded.updates]
    assert sorted(replaced) == sorted(p.name for p in loaded.state())
    # What else the function captures are coefficients of the optimizer.
    assert [p.value for p in loaded.of_kind(program.VALUE)] == pytest.approx([0.9, 0.999, 0.01])
    assert loaded.tokens == LENGTH * ROWS
    assert "loss" in loaded.metrics


def test_outputs_that_are_not_the_state_are_refused(folder):
    loaded = Program.load(str(folder / "programs/check"))
    parameters = list(loaded.parameters)
    dims = [emit._HLO_TYPES[p.dtype] + emit._dimensions(p) for p in parameters]
    aliases = [f"{{{i}}}: ({n}, {{}}, may-alias)" for i, n in enumerate(loaded.updates, 1)]

    def header(aliases, outputs):
        layout = f"{{({', '.join(dims)})->({', '.join(outputs)})}}"
        return f"HloModule x, alias={{{', '.join(aliases)}}}, entry_computation_layout={layout}\n"

    outputs = ["f32[10]", *(dims[i] for i in loaded.updates)]
    assert emit._updates(header(aliases, outputs), parameters) == loaded.updates
    with pytest.raises(AlbertError, match="parameters are not"):
        emit._updates(header(aliases[:-1], outputs), parameters)
    with pytest.raises(AlbertError, match="outputs are not"):
        emit._updates(header(aliases, [*outputs[:-1], "f32[7]"]), parameters)


def test_initial_weights_depend_on_the_seed_and_the_name():
    def value(name, seed=1, **fields):
        parameter = Parameter(WEIGHT, name, (50, 40), "float32", **fields)
        return program.initial_value(parameter, seed, stddev=0.02)

    assert np.array_equal(value("a"), value("a"))
    assert not np.array_equal(value("a"), value("b"))
    assert not np.array_equal(value("a"), value("a", seed=2))
    assert np.abs(value("a")).max() <= np.float32(0.04)
    assert value("a").std() == pytest.approx(0.02 * 0.88, rel=0.05)  # Cut at two deviations.
    assert (value("gamma", value=1.0) == 1).all()


def test_batches_are_repeated_and_keep_their_types(folder, tmp_path):
    loaded = Program.load(str(folder / "programs/check"))
    path = str(folder / "programs/check" / program.BATCHES_FILE)
    batches = program.Batches(path, loaded)
    assert len(batches) == 4
    assert batches[0]["input_word_ids"].dtype == np.int32
    assert all(np.array_equal(batches[1][name], batches[5][name]) for name in batches[1])
    wrong = {name: value[:2] for name, value in batches[0].items()}
    program.save_batches(str(tmp_path / "b.npz"), [wrong])
    with pytest.raises(ValueError, match="input_mask is"):
        program.Batches(str(tmp_path / "b.npz"), loaded)


@pytest.mark.parametrize("part_bytes", [None, 1000])
def test_a_state_is_read_as_it_was_written(part_bytes, tmp_path):
    state = {"a/b": np.arange(1000, dtype=np.float32), "step": np.array(3)}
    path = str(tmp_path / "state-3.npz")
    program.save_state(path, state, part_bytes)
    assert len(os.listdir(tmp_path)) == (5 if part_bytes else 1)
    loaded = program.load_state(path)
    assert all(np.array_equal(loaded[name], state[name]) for name in state)
    program.save_state(str(tmp_path / "state-20.npz"), state, part_bytes)
    assert pretrain.newest_state(str(tmp_path)) == str(tmp_path / "state-20.npz")
    with pytest.raises(FileNotFoundError, match="neither"):
        program.load_state(str(tmp_path / "state-4.npz"))


@pytest.mark.parametrize("text", ["albert_base_v2", "albert_base_v2:128", "a:b:c", "a:128:0"])
def test_a_program_needs_config_length_and_rows(text):
    with pytest.raises(AlbertError, match="config:length:rows"):
        emit.parse_shape(text)


def test_programs_are_named_after_their_shape():
    assert emit.parse_shape("x/tiny.json:32:8").folder == "tiny_32x8"


@pytest.mark.parametrize(
    ("kind", "tflops"),
    [("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H100 PCIe", 756), ("NVIDIA L40S", 362), ("cpu", 0)],
)
def test_the_peak_is_that_of_the_card(kind, tflops):
    assert (peak_flops(kind) or 0) == tflops * 1e12


@pytest.mark.parametrize("card", CARDS)
def test_a_card_is_described_to_the_compiler(card):
    text = target_config(card)
    assert text.count("{") == text.count("}") == 3
    assert f'name: "{CARDS[card]["name"]}"' in text
    assert peak_flops(CARDS[card]["name"]) == 989e12


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.exists(CUDA_PYTHON),
    reason="There is no environment .venv-peers/cuda, nor one that JAX_CUDA_PYTHON names.",
)
def test_a_step_compiles_for_a_gpu_that_is_not_there(folder):
    command = [CUDA_PYTHON, "-m", "benchmarks.gpu_step", "compile", "--programs", "programs"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["program"] for line in lines] == ["00_tiny", "check"]
    assert all(line["step_gib"] > line["state_gib"] > 0 for line in lines)
    assert all(line["kernels"] > 20 for line in lines)


HLO = """HloModule m

%inside (p: f32[1000000]) -> f32[1000000] {
  %p = f32[1000000]{0} parameter(0)
  ROOT %twice = f32[1000000]{0} add(%p, %p)
}

ENTRY %main (x: bf16[1024,1024], y: pred[1024,1024]) -> f32[512,1024] {
  %x = bf16[1024,1024]{1,0} parameter(0)
  %y = pred[1024,1024]{1,0} parameter(1)
  %both = (bf16[1024,1024]{1,0}, s32[]) fusion(%x, %y), kind=kLoop, calls=%inside
  %first = bf16[1024,1024]{1,0} get-tuple-element(%both), index=0
  %one = s32[] get-tuple-element(%both), index=1
  %next = s32[] fusion(%one), kind=kLoop, calls=%inside
  ROOT %sums = f32[512,1024]{1,0:T(8,128)} custom-call(%first), custom_call_target="gemm"
}
"""


def test_the_traffic_of_a_compiled_program_is_that_of_its_large_kernels():
    # The fusion reads 2 + 1 MiB and writes 2, the call reads 2 and writes 2.
    assert traffic.of_hlo(HLO) == {"kernels": 2, "moved_gib": 0.0}
    larger = HLO.replace("1024,1024]", "131072,1024]").replace("512,1024]", "65536,1024]")
    assert traffic.of_hlo(larger) == {"kernels": 2, "moved_gib": round(9 / 8, 1)}


def test_the_traffic_of_a_graph_is_that_of_the_operations_that_are_needed():
    import tensorflow as tf

    @tf.function
    def inner(x):
        tf.exp(x)  # Nothing needs it.
        return tf.reshape(x, [512, 2**18]) + 1.0

    function = tf.function(lambda x: tf.sqrt(inner(x)) * tf.constant(2.0))
    graph = function.get_concrete_function(tf.TensorSpec([2**27])).graph
    # Three operations of half a GiB in and out each.
    assert traffic.of_graph(graph) == {"kernels": 3, "moved_gib": 3.0}


class StandIn:
    """Takes the place of a contestant's process."""

    versions = ()

    def __init__(self, name, python, setup, time_limit):
        self.name, self.setup = name, setup
        if name == "transformers" and setup["config"]["vocab_size"] == 7:
            raise protocol.PeerError("no memory", "a trace")
        if name == "emitted" and setup["program"].endswith("02_broken"):
            raise RuntimeError("unexpected")

    def __call__(self, steps):
        return steps * (0.5 if self.name == "emitted" else 1.0), 3.0

    def facts(self):
        if self.name == "transformers":
            return {"peak_bytes": 2**30}
        check = {"losses": [1.0], "loss_difference": 0.1, "norms_alike": 1.0}
        return {"device": "NVIDIA H100", "step_bytes": 2**31, "peak_bytes": None, "check": check}

    def end_after(self, seconds):
        pass

    def close(self):
        pass


@pytest.fixture
def stand_ins(monkeypatch):
    monkeypatch.setattr(run, "Peer", StandIn)


def copy_program(folder, target, **config):
    loaded = json.loads((folder / program.PROGRAM_FILE).read_text())
    loaded["config"].update(config)
    target.mkdir(parents=True)
    (target / program.PROGRAM_FILE).write_text(json.dumps(loaded))
    (target / program.BATCHES_FILE).write_bytes((folder / program.BATCHES_FILE).read_bytes())


def runner(programs, tmp_path, *more):
    options = [f"--programs={programs}", f"--output={tmp_path}/results.json", "--turns=3", *more]
    return run.Runner(run.parse_arguments(options))


def test_results_hold_rates_shares_memory_and_ratio(folder, stand_ins, tmp_path, capsys):
    copy_program(folder / "programs/check", tmp_path / "programs/00_tiny")
    assert runner(tmp_path / "programs", tmp_path).run()
    (entry,) = json.loads((tmp_path / "results.json").read_text())["programs"]
    rate = {"median": 2.0 * LENGTH * ROWS, "least": 2.0 * LENGTH * ROWS, "most": 128.0}
    assert entry["ours"]["tokens_per_second"] == rate
    assert entry["ours"]["peak_share"] == pytest.approx(entry["flops"] / 0.5 / 989e12)
    assert entry["ratio"]["median"] == 2.0
    assert "ours 128 tokens/s (128 … 128) 0.0% of peak 2.0 GiB" in capsys.readouterr().out


def test_a_contestant_that_fails_does_not_stop_the_others(folder, stand_ins, tmp_path):
    source, programs = folder / "programs/check", tmp_path / "programs"
    copy_program(source, programs / "01_peer_fails", vocab_size=7)
    copy_program(source, programs / "02_broken")
    copy_program(source, programs / "03_tiny")
    assert runner(programs, tmp_path).run()
    first, second, third = json.loads((tmp_path / "results.json").read_text())["programs"]
    assert first["peer"] == {"error": "PeerError: no memory", "output": "a trace"}
    assert first["ours"]["last_loss"] == 3.0
    assert second["error"] == "RuntimeError: unexpected"
    assert "ratio" in third


def test_programs_without_time_are_skipped(folder, stand_ins, tmp_path):
    copy_program(folder / "programs/check", tmp_path / "programs/00_tiny")
    assert not runner(tmp_path / "programs", tmp_path, "--minutes=0.1").run()
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["skipped"] == ["00_tiny"]


def test_losses_that_differ_fail_the_check(folder, stand_ins, tmp_path, capsys):
    assert not runner(folder / "programs", tmp_path).run()
    assert "FAILED" in capsys.readouterr().out


def test_a_process_is_ended_at_its_time_limit(tmp_path):
    with pytest.raises(protocol.PeerError, match="status -9"):
        slow = tmp_path / "python"
        slow.write_text("#!/bin/sh\nexec sleep 60\n")
        slow.chmod(0o755)
        protocol.Peer("ours", str(slow), {}, time_limit=0.2)


def test_initial_weights_can_look_at_the_neighboring_tokens(folder):
    one = Program.load(str(folder / "programs/check"))
    given = {p.name: p for p in one.of_kind(WEIGHT)}
    changed = emit._neighbor_attention(one)
    assert {name.split("bert/")[1].split("/")[0] for name in changed} == {"embeddings", "encoder"}
    assert sum(name.endswith(("query/kernel", "key/kernel")) for name in changed) == 2
    positions = changed["bert/embeddings/position_embeddings"]
    # The next position is a rotation away, so all have the same length.
    assert np.linalg.norm(positions, axis=1) == pytest.approx(np.linalg.norm(positions[0]))
    for name, value in changed.items():
        random = program.initial_value(given[name], one.seed, one.stddev)
        assert value.shape == random.shape and value.dtype == random.dtype
        assert not np.array_equal(value, random)


def test_an_entry_of_the_log_holds_means_of_the_finite_steps():
    columns = {
        "finite": np.array([1.0, 0.0, 1.0]),
        "loss": np.array([2.0, np.nan, 4.0]),
        "learning_rate": np.array([0.1, 0.2, 0.3]),
        "tokens": np.array([6.0, 6.0, 6.0]),
        "positions": np.array([8.0, 8.0, 8.0]),
    }
    expected = {"step": 9, "split": "train", "loss": 3.0, "learning_rate": 0.3}
    assert pretrain.log_entry(9, columns) == {**expected, "padding_share": 0.25}
    lost = pretrain.log_entry(9, {**columns, "finite": np.zeros(3)})
    assert np.isnan(lost["loss"]) and lost["learning_rate"] == 0.3


def test_a_log_is_cut_where_the_run_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    pretrain._cut_log(str(path), 4)
    assert not path.exists()
    path.write_text('{"step": 2}\n{"step": 4}\n{"step": 6}\n')
    pretrain._cut_log(str(path), 4)
    assert path.read_text() == '{"step": 2}\n{"step": 4}\n'


@needs_jax
@pytest.mark.slow
def test_a_run_that_diverges_is_stopped_with_a_status_of_its_own(folder, tmp_path):
    shape = emit.Shape(str(folder / "config.json"), LENGTH, ROWS)
    schedule = {"learning_rate": 1e30, "num_train_steps": 10, "num_warmup_steps": 0}
    emit.emit(shape, str(tmp_path / "one"), emit.Options(schedule))
    printed = run_with_jax(
        "pretrain", f"--program={tmp_path}/one", f"--data={tmp_path}/one/{program.BATCHES_FILE}",
        f"--output_dir={tmp_path}/states", "--steps=5", status=pretrain.DIVERGED,
    )  # fmt: skip
    assert "Training has diverged: " in printed and "not finite" in printed
    assert os.listdir(tmp_path / "states") == ["metrics.jsonl"]
    assert not pretrain.newest_state(str(tmp_path / "states"))


@needs_jax
def test_the_step_in_jax_has_tensorflows_losses(folder, tmp_path):
    output = tmp_path / "results.json"
    options = ["--peer_python=", "--turns=2", "--turn_seconds=0.05", f"--output={output}"]
    printed = run_with_jax("run", f"--programs={folder}/programs", *options)
    assert "4 losses within" in printed
    results = json.loads(output.read_text())
    check = results["check"]
    assert check["passed"]
    assert check["loss_difference"] < run.LOSS_TOLERANCE
    assert check["norms_alike"] > run.NORMS_ALIKE
    (entry,) = results["programs"]
    assert entry["ours"]["tokens_per_second"]["median"] > 0
    # A step keeps the state where it was.
    assert entry["ours"]["alias_bytes"] > 0.9 * entry["ours"]["output_bytes"]


@needs_jax
@pytest.mark.slow
def test_run_pretraining_goes_on_where_the_device_stopped(folder, tmp_path):
    one, records_file = f"{folder}/programs/00_tiny", f"{folder}/a.tfrecord"
    data, states, output = (str(tmp_path / name) for name in ("data.npz", "states", "run"))
    common = [f"--program={one}", f"--input_file={records_file}"]
    run_here("-m", "benchmarks.gpu_step", "data", *common, "--steps=10", f"--output={data}")

    trained = (
        "pretrain", f"--program={one}", f"--data={data}", f"--output_dir={states}", "--log_steps=1"
    )  # fmt: skip
    run_with_jax(*trained, "--steps=3", "--save_steps=2")
    assert sorted(os.listdir(states)) == ["metrics.jsonl", "state-2.npz", "state-3.npz"]
    run_with_jax(*trained, "--steps=6", "--part_mib=0.01")
    with open(f"{states}/metrics.jsonl", encoding="utf-8") as f:
        losses = {line["step"]: line["loss"] for line in map(json.loads, f)}
    reference = Program.load(str(folder / "programs/check")).reference["metrics"]["loss"]
    # The batches are those of the reference, and stopping has changed nothing.
    assert list(losses.values())[:4] == pytest.approx(reference, abs=run.LOSS_TOLERANCE)
    assert list(losses) == [1, 2, 3, 4, 5, 6]

    state = f"--state={states}/state-6.npz"
    made = (
        "-m", "benchmarks.gpu_step", "checkpoint", *common, state, f"--output_dir={output}",
        f"--metrics={states}/metrics.jsonl",
    )  # fmt: skip
    run_here(*made)
    assert [entry["step"] for entry in read_metrics(output)] == [1, 2, 3, 4, 5, 6]
    assert "is not empty" in run_here(*made, status=1)
    stored = program.load_state(f"{states}/state-6.npz")
    source = open_source(output)
    for parameter in Program.load(one).of_kind(WEIGHT):
        assert np.array_equal(source.read(parameter.name), stored[parameter.name])
    resumed = run_here(
        "run_pretraining.py", "--do_train", f"--input_file={records_file}",
        f"--albert_config_file={folder}/config.json", f"--output_dir={output}",
        f"--train_batch_size={ROWS}", "--precision=mixed_bfloat16",
        *(f"--{name}={value}" for name, value in SCHEDULE.items()),
    )  # fmt: skip
    assert f"Resuming {output} at step 6." in resumed
