# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks.tpu: steps of every task, compiled for TPUs."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import itertools
import json
import os
import pathlib
import subprocess
import types

import numpy as np
import pytest

from albert_tf.cli import script
from albert_tf.config import AlbertConfig
from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.modeling.flops import forward_flops, training_flops
from benchmarks import step_programs
from benchmarks.step_programs import PREDICT, STAGES, TASKS, TRAIN, Step
from benchmarks.tpu import __main__ as tpu
from benchmarks.tpu.chips import topology
from benchmarks.tpu.operations import main_memory_bytes, operations_table
from tests.support.builders import tiny_config

pytestmark = pytest.mark.tooling

ROOT = pathlib.Path(__file__).parents[2]
COMPILER = os.environ.get("JAX_PYTHON", str(ROOT / ".venv-peers/tpu/bin/python"))
needs_compiler = pytest.mark.skipif(
    not os.path.exists(COMPILER),
    reason="There is no environment .venv-peers/tpu with JAX, nor one that JAX_PYTHON names.",
)
STEP = Step("masked", "albert_base_v2", 128, 8)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    tiny_config(100, max_position_embeddings=64).to_json(str(path))
    return str(path)


def held_by(rows_that_fit, path, base=0.0, share=0.5):
    """Results of a compiler that refuses programs of more rows, and the rows that it was asked.

    Each program uses `base` of the memory, and one of the most rows this and `share` of the rest.
    """
    asked = []

    class Stub(tpu.Results):
        def compiled(self, step, chips):
            for chip in chips:
                asked.append(step.rows)
                sizes = dict.fromkeys(("output", "alias", "generated_code"), 0)
                used = base + (1 - base) * share * step.rows / (rows_that_fit or 1)
                sizes.update(argument=0, temp=used * tpu.CHIPS[chip].hbm_gib * 2**30)
                line = {"rows": step.rows, **{f"{x}_bytes": y for x, y in sizes.items()}}
                yield line if step.rows <= rows_that_fit else {"error": "full"}

    return Stub(str(path)), asked


@pytest.mark.parametrize("limit", [7, 8, 30, 100, 1000])
def test_the_largest_batch_is_close_to_what_the_compiler_accepts(limit, tmp_path):
    results, asked = held_by(limit, tmp_path)
    rows = tpu.largest_batch(results, dataclasses.replace(STEP, rows=16), "v3")
    assert 0.8 * limit - 8 < rows <= limit
    assert all(rows % 8 == 0 for rows in asked)
    assert len(set(asked)) < 12


def test_what_all_programs_need_does_not_make_the_search_long(tmp_path):
    results, asked = held_by(3000, tmp_path, base=0.04, share=1.0)
    rows = tpu.largest_batch(results, dataclasses.replace(STEP, rows=16), "v3")
    assert 2600 < rows <= 3000
    # The first estimate is 440 rows, as it takes the base for memory of the rows.
    assert len(set(asked)) < 6


@pytest.mark.parametrize(
    ("chip", "asked", "rows"), [("v3", [520, 584], 520), ("v4", [1040, 912], 912)]
)
def test_the_search_begins_at_what_another_chip_holds(chip, asked, rows, tmp_path, monkeypatch):
    def line(compiled, on, used):
        sizes = dict.fromkeys(("output", "alias", "generated_code"), 0)
        sizes.update(argument=2**27, temp=used * 2**30 - 2**27)
        sizes = {f"{name}_bytes": size for name, size in sizes.items()}
        return {**dataclasses.asdict(compiled), "chip": on, **sizes}

    tried = []
    monkeypatch.setattr(tpu, "_prepare", lambda step, path: None)

    class Stub(tpu.Results):
        def _compile(self, step, program, on):
            tried.append(step.rows)
            return {} if step.rows < 1000 and step.rows != 584 else {"error": "full"}

    results = Stub(str(tmp_path))
    for size, used in ((16, 0.6), (400, 13.0), (520, 15.6)):
        results._add(line(dataclasses.replace(STEP, rows=size), "v5e", used))
    results._add({**line(dataclasses.replace(STEP, rows=584), "v5e", 0), "error": "full"})
    # Another step.
    results._add(line(dataclasses.replace(STEP, rows=64, recompute=True), "v5e", 15.6))
    assert tpu.largest_batch(results, STEP, chip) == rows
    assert tried == asked


def test_the_search_goes_on_upwards_from_an_estimate_that_fits(tmp_path):
    asked = []

    def accepted(rows):
        asked.append(rows)
        return rows <= 100

    assert tpu._search(accepted, 64) == 96
    assert asked == [64, 72, 80, 88, 96, 104]


@pytest.fixture
def commands(monkeypatch):
    """What would have been run; each command prints how many there were before."""
    asked = []

    def run(command):
        if command[1] == "-c":
            pathlib.Path(command[-1]).write_bytes(b"program")
        asked.append(command[1:])
        sizes = {f"{part}_bytes": 0 for part in ("argument", "temp")}
        return json.dumps({"flops": len(asked), "bytes_accessed": 0, **sizes})

    monkeypatch.setattr(tpu, "_run", run)
    return asked


def test_a_program_with_a_result_is_not_compiled_again(tmp_path, commands):
    for _ in range(2):
        results = tpu.Results(str(tmp_path / "results"), "python")
        assert [x["chip"] for x in results.compiled(STEP, ["v3", "v4"])] == ["v3", "v4"]
    # The step is lowered once for both chips.
    assert [command[0] for command in commands] == ["-c", tpu._COMPILER, tpu._COMPILER]


def test_again_adds_a_line_that_counts_from_then_on(tmp_path, commands):
    def flops(**options):
        results = tpu.Results(str(tmp_path), "python", **options)
        return [line["flops"] for _ in range(2) for line in results.compiled(STEP, ["v3"])]

    assert flops() == [2, 2]
    assert flops(again=True) == [4, 4]  # Once a run.
    assert flops() == [4, 4]
    assert len((tmp_path / tpu.RESULTS_FILE).read_text().splitlines()) == 2


def test_lines_without_the_newer_fields_count(tmp_path, commands):
    line = {**dataclasses.asdict(STEP), "chip": "v3", "flops": -1}
    del line["replicas"]
    (tmp_path / tpu.RESULTS_FILE).write_text(json.dumps(line) + "\n")
    (found,) = tpu.Results(str(tmp_path), "python").compiled(STEP, ["v3"])
    assert found["flops"] == -1
    assert not commands


def test_the_compiler_is_told_the_slice_and_where_to_keep_the_program(tmp_path, commands):
    results = tpu.Results(str(tmp_path), "python", programs=str(tmp_path / "programs"))
    step = dataclasses.replace(STEP, replicas=8, recompute=True)
    list(results.compiled(step, ["v5e"]))
    options = commands[-1][2:]
    assert options[:2] == ["--topology=v5e:2x4", "--replicas=8"]
    name = "v5e_masked_train_albert_base_v2_128x8_replicas8_recompute.hlo.gz"
    assert options[2:] == [f"--keep={tmp_path}/programs/{name}"]
    list(results.compiled(STEP, ["v4"]))
    assert commands[-1][4] == "--chip_config=megacore"


def test_steps_are_compiled_for_each_combination_of_flags(tmp_path, commands, run_script):
    script_of_steps = types.SimpleNamespace(
        __name__="steps", main=functools.partial(script.run, *tpu.COMMANDS["steps"])
    )
    flags = ["--configs=albert_tiny", "--chips=v3,v5e", "--micro_batches=1,2", "--recompute=no,yes"]
    flags += ["--rows=8", "--tasks=masked", "--compiler_python=python", f"--output_dir={tmp_path}"]
    table = run_script(script_of_steps, *flags).ok().stdout.splitlines()[2:]
    assert len(table) == 2 * (2 * 2 + 1)  # Train steps with each, and one for predictions.
    assert (
        sum("| train, recompute | albert_tiny | 128 | 8 in 2 parts |" in row for row in table) == 2
    )


def test_the_peer_gets_the_models_configuration(tmp_path, commands):
    read = {}

    class Reading(tpu.Results):
        def _compile(self, step, program, chip):
            read.update(json.loads(pathlib.Path(program).read_text()))
            return super()._compile(step, program, chip)

    list(Reading(str(tmp_path), "python").compiled(Step(tpu.PEER, "albert_tiny", 64, 8), ["v3"]))
    assert commands == [[tpu._PEER, *commands[0][1:]]]
    assert read.pop("config") == AlbertConfig.load("albert_tiny").to_dict()
    assert read == {"seq_length": 64, "rows": 8, "predictions": 10}


def test_a_machine_has_only_some_numbers_of_devices():
    assert topology("v3", 1) == topology("v3", 8) == "v3:2x2"
    with pytest.raises(AlbertError, match=r"v5e has 4 or 8 devices here, so .* 16 replicas"):
        topology("v5e", 16)


PROGRAM = """HloModule step

%inner (x: f32[4]) -> f32[4] {
  ROOT %y.1 = f32[4]{0:T(128)} fusion(%x), backend_config={"estimated_cycles":"7000000"}
}

ENTRY %main (a: bf16[1000,100]) -> f32[1000] {
  %a = bf16[1000,100]{1,0:T(8,128)(2,1)} parameter(0)
  %copy-start.1 = (bf16[1000,100]{1,0:T(8,128)(2,1)S(1)}, bf16[1000,100]{1,0:T(8,128)(2,1)}, \
u32[]{:S(2)}) copy-start(%a)
  %copy-done.1 = bf16[1000,100]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start.1)
  %fusion.1 = f32[1000]{0:T(1024)} fusion(%copy-done.1, %a), kind=kLoop, calls=%inner, \
metadata={op_name="model/layer/Sum_12"}, backend_config={"estimated_cycles":"2000000"}
  ROOT %fusion.2 = f32[1000]{0:T(1024)} fusion(%fusion.1), calls=%inner, \
metadata={op_name="model/Sum"}, backend_config={"estimated_cycles":"1000000"}
}
"""


def test_operations_access_main_memory_with_its_padding(tmp_path):
    assert main_memory_bytes("bf16[1000,100]{1,0:T(8,128)(2,1)}") == 1000 * 128 * 2
    assert main_memory_bytes("(f32[100,3]{0,1:T(4,128)}, pred[], u32[2]{0:S(2)})") == 2048 + 1 + 8
    assert main_memory_bytes("f32[100]{0:T(128)S(1)}") == 0
    path = tmp_path / "step.hlo.gz"
    path.write_bytes(gzip.compress(PROGRAM.replace("\\\n", "").encode()))
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in read_table(path)]
    # 256,000 bytes of a, copied to the chip and read from there; 4,000 of each sum.
    assert rows == [
        ["all", "", "", "", "516.00", "8.00", "3.0"],
        ["fusion", "Sum", "f32[1000]", "2", "260.00", "8.00", "3.0"],
        ["copy-start", "", "(bf16[1000,100], bf16[1000,100], u32[])", "1", "256.00", "0.00", "0.0"],
    ]


def read_table(path):
    """The rows of a table in KB, not GB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.tpu.operations.GB", 1e3)
        return operations_table(str(path), 5).splitlines()[2:]


def test_the_models_own_count_includes_the_passes_of_the_stage():
    config = AlbertConfig.load("albert_base_v2")
    assert tpu.model_flops(STEP) == 8 * training_flops(config, 128, 19)
    again = dataclasses.replace(STEP, recompute=True)
    assert tpu.model_flops(again) == 8 * 4 * forward_flops(config, 128, 19)
    choice = dataclasses.replace(STEP, task="multiple_choice", stage=PREDICT)
    assert tpu.model_flops(choice) == 32 * forward_flops(config, 128, num_read=1)
    squad = dataclasses.replace(choice, task="squad_1")
    assert tpu.model_flops(squad) == 8 * forward_flops(config, 128)


def test_the_table_names_what_does_not_fit():
    line = {**dataclasses.asdict(STEP), "chip": "v3"}
    sizes = {f"{part}_bytes": 2**30 for part in ("argument", "output", "alias", "temp")}
    table = tpu.steps_table(
        [
            {
                **{**line, **sizes, "flops": tpu.model_flops(STEP)},
                **{"bytes_accessed": 5e9, "entry_cycles": 7e6},
            },
            {**line, "error": "x"},
        ]
    )
    row = "| v3 | masked | train | albert_base_v2 | 128 | 8 | 1.00 | 1.00 | 5.0 | 7 | 0.51 | 1.00 |"
    assert row in table
    assert "| 8 | does not fit |" in table


MORE_STEPS = sorted({*itertools.product(TASKS, STAGES)} - {("masked", TRAIN), ("squad_2", PREDICT)})


@pytest.mark.parametrize(
    ("task", "stage"),
    [
        ("masked", TRAIN),
        ("squad_2", PREDICT),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_STEPS),
    ],
)
def test_steps_of_every_task_are_lowered_to_one_program(task, stage, config):
    program = step_programs.lower(Step(task, config, 32, 8, stage))
    assert b"ENTRY" not in program  # Serialized, not text.
    assert len(program) > 50_000


def test_replicas_sum_in_the_program(config):
    def sums(replicas):
        program = step_programs.lower(Step("masked", config, 32, 8, replicas=replicas))
        return program.count(b"all-reduce")

    assert sums(1) == 0
    # At least those of the weights of the losses, of the gradients and of the metrics.
    assert sums(8) > 20


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("replicas", [1, 8])
def test_a_small_step_compiles_for_v5e(config, tmp_path, replicas):
    results = tpu.Results(str(tmp_path), COMPILER, programs=str(tmp_path))
    (line,) = results.compiled(Step("masked", config, 32, 8, replicas=replicas), ["v5e"])
    assert tpu.fits(line), line
    assert line["device"] == "TPU v5 lite"
    assert line["entry_cycles"] > 0
    # The optimizer's state is updated in place.
    assert line["alias_bytes"] > 0.9 * line["output_bytes"]
    (kept,) = tmp_path.glob("*.hlo.gz")
    assert ("all-reduce" in gzip.decompress(kept.read_bytes()).decode()) == (replicas > 1)


#: The peer's names of our weights.
PEER_NAMES = {
    "word_embeddings": "words",
    "token_type_embeddings": "types",
    "position_embeddings": "positions",
    "embeddings/LayerNorm": "embedding_norm",
    "embedding_hidden_mapping_in": "projection",
    "attention_1/self/query": "query",
    "attention_1/self/key": "key",
    "attention_1/self/value": "value",
    "attention_1/output/dense": "output",
    "ffn_1/intermediate/dense": "inner",
    "ffn_1/intermediate/output/dense": "outer",
    "inner_group_0/LayerNorm": "norm_1",
    "inner_group_0/LayerNorm_1": "norm_2",
    "pooler/dense": "pooler",
    "transform/dense": "transform",
    "transform/LayerNorm": "head_norm",
    "predictions/output_bias": "masked_lm.bias",
    "seq_relationship/output_weights": "order.kernel",
    "seq_relationship/output_bias": "order.bias",
}
_PEER_LOSS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax_peer, numpy as np
arrays = dict(np.load(sys.argv[2]))
weights = {k[2:]: v for k, v in arrays.items() if k.startswith("w:")}
batch = {k[2:]: v for k, v in arrays.items() if k.startswith("b:")}
config = json.loads(sys.argv[3])
assert {k: v.shape for k, v in weights.items()} == jax_peer.weight_shapes(config)
print(jax_peer.loss_and_metrics(weights, batch, config)[1].tolist())
"""


def peer_name(name):
    """The peer's name of a weight."""
    suffixes = {"kernel": ".kernel", "bias": ".bias", "gamma": ".scale", "beta": ".bias"}
    stem, _, part = name.rpartition("/")
    if part not in suffixes:
        stem, part = name, None
    (peer,) = (peer for ours, peer in PEER_NAMES.items() if f"/{stem}".endswith(f"/{ours}"))
    return peer + suffixes.get(part, "")


@pytest.mark.slow
@needs_compiler
def test_the_peer_computes_our_losses(tmp_path):
    from albert_tf.keras2 import keras

    config = tiny_config(100, num_hidden_layers=2, max_position_embeddings=64)
    path = tmp_path / "config.json"
    config.to_json(str(path))
    step = Step("masked", str(path), 32, 8)
    keras.utils.set_random_seed(1)
    task, source = step_programs._open_task(step, str(tmp_path))
    function = step_programs.StepFunction(step, task, source)
    arrays = {}
    for name, weight in function.model.named_weights().items():
        # Larger than initial weights, so that a difference would show.
        value = 8 * weight.numpy() + ("bias" in name) * np.float32(0.1)
        weight.assign(value)
        value = value.T if name.endswith("output_weights") else value
        arrays[f"w:{peer_name(name)}"] = value
    batch = {k: v.numpy() for k, v in next(iter(source.train_input_fn(InputContext(8)))).items()}
    arrays |= {f"b:{name}": value for name, value in batch.items()}
    np.savez(tmp_path / "arrays.npz", **arrays)
    function.lower()  # For the names of the metrics.
    (metrics,) = function.run_uncompiled([batch])
    ours = dict(zip(function.metric_names, metrics))
    command = [COMPILER, "-c", _PEER_LOSS, str(ROOT / "benchmarks/tpu")]
    command += [str(tmp_path / "arrays.npz"), json.dumps(config.to_dict())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    names = ("masked_lm_loss", "masked_lm_accuracy", "sentence_order_loss")
    peer = dict(zip(names, json.loads(done.stdout.splitlines()[-1])))
    for name, value in peer.items():
        np.testing.assert_allclose(value, ours[name], rtol=0, atol=0.02, err_msg=name)
