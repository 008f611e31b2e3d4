# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowers pretraining steps to programs for benchmarks.gpu_step's other commands."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import os
import re
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import flags

from albert_tf.cli.flags import define_path
from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from benchmarks.flops import training_flops
from benchmarks.gpu_step.program import (
    BATCH,
    INITIAL_FILE,
    SLOT,
    STEP,
    WEIGHT,
    Parameter,
    Program,
    initial_value,
    save_state,
)
from benchmarks.random_step import MASKED_SHARE, PRECISIONS, predictions_of, random_columns
from benchmarks.step_programs import Step, StepFunction

if TYPE_CHECKING:
    from albert_tf.data.pipeline import RecordSource

#: In order of importance: config, length and rows, as --programs takes them.
PROGRAMS = (
    "albert_base_v2:128:128",
    "albert_base_v2:512:32",
    "albert_large_v2:128:128",
    "albert_large_v2:512:32",
    "albert_xlarge_v2:128:64",
    "albert_xlarge_v2:512:16",
    "albert_xxlarge_v2:128:64",
    "albert_xxlarge_v2:512:16",
)
#: Folder of the program that has a reference.
CHECK = "check"
SEED = 12345
_ALIAS = re.compile(r"\{(\d+)\}: \((\d+), \{\}, may-alias\)")

FLAGS = flags.FLAGS


class Shape(NamedTuple):
    """One of --programs."""

    config: str
    seq_length: int
    rows: int

    @property
    def folder(self) -> str:
        """Name of the program's folder."""
        name = os.path.splitext(os.path.basename(self.config))[0]
        return f"{name}_{self.seq_length}x{self.rows}"


def parse_shape(text: str) -> Shape:
    """Returns the Shape of "config:length:rows".

    Raises:
      AlbertError: it is none.
    """
    config, *numbers = text.rsplit(":", 2)
    if len(numbers) != 2 or not all(n.isdecimal() and int(n) for n in numbers):
        raise AlbertError(f"{text!r} must be config:length:rows, such as albert_base_v2:128:128.")
    return Shape(config, int(numbers[0]), int(numbers[1]))


def define_flags() -> None:
    """Defines the flags."""
    define_path("output_dir", None, "Folder for the programs, one folder each.", required=True)
    flags.DEFINE_list(
        "programs", list(PROGRAMS), "Steps to lower, config:length:rows each; the config is a "
        "preset or a JSON file."
    )  # fmt: skip
    flags.DEFINE_string(
        "check", "albert_base_v2:128:8", "The step that TensorFlow runs, too, on the CPU, so that "
        "`run` can compare; empty: none."
    )  # fmt: skip
    flags.DEFINE_integer("check_steps", 8, "Steps of it.", 1)
    flags.DEFINE_integer("batches", 4, "Batches stored with each program; steps repeat them.", 1)
    flags.DEFINE_enum("precision", "bf16", list(PRECISIONS), "Compute type of the products.")
    flags.DEFINE_float(
        "masked_lm_prob", MASKED_SHARE, "Share of the positions that is masked.", 0.0, 1.0
    )
    flags.DEFINE_bool(
        "neighbor_attention", False, f"Also write {INITIAL_FILE}, initial weights as those of "
        "run_pretraining.py --neighbor_attention."
    )  # fmt: skip
    flags.DEFINE_float("learning_rate", 1e-3, "Peak learning rate.", 0.0)
    flags.DEFINE_integer("num_train_steps", 100_000, "Step at which the rate is zero.", 1)
    flags.DEFINE_integer("num_warmup_steps", 0, "Steps of linear warm-up.", 0)


@dataclasses.dataclass(frozen=True)
class Options:
    """What the programs have in common.

    Attributes:
      schedule: arguments of `learning_rate_at`.
      batches: stored with each program.
      policy: a Keras policy.
      masked_share: of the positions of random tokens.
      neighbor_attention: write initial weights as `attend_to_neighbors` makes them.
    """

    schedule: dict[str, float]
    batches: int = 4
    policy: str = "mixed_bfloat16"
    masked_share: float = MASKED_SHARE
    neighbor_attention: bool = False


def main() -> None:
    """Writes every program's folder."""
    shapes = [parse_shape(text) for text in FLAGS.programs]
    # The number keeps their order.
    folders = {f"{i:02d}_{shape.folder}": (shape, 0) for i, shape in enumerate(shapes)}
    if FLAGS.check:
        folders[CHECK] = (parse_shape(FLAGS.check), FLAGS.check_steps)
    names = ("learning_rate", "num_train_steps", "num_warmup_steps")
    options = Options(
        {name: FLAGS[name].value for name in names},
        FLAGS.batches,
        PRECISIONS[FLAGS.precision],
        FLAGS.masked_lm_prob,
        FLAGS.neighbor_attention,
    )
    for name, (shape, reference_steps) in folders.items():
        folder = os.path.join(FLAGS.output_dir, name)
        # In a process of its own, as TensorFlow would keep the weights of every model.
        spawn = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
            pool.submit(emit, shape, folder, options, reference_steps).result()
        size = sum(entry.stat().st_size for entry in os.scandir(folder))
        print(f"{folder}: {size / 1024:,.0f} KiB", flush=True)


def emit(shape: Shape, folder: str, options: Options, reference_steps: int = 0) -> None:
    """Lowers a step and writes its folder; TensorFlow makes `reference_steps`, too."""
    from albert_tf.data.context import InputContext

    config = AlbertConfig.load(shape.config)
    step = Step("masked", *shape, precision=options.policy)
    with tempfile.TemporaryDirectory() as scratch:
        count = max(options.batches, reference_steps)
        source = _source(config, step, count, scratch, options.masked_share)
        found = itertools.islice(source.train_input_fn(InputContext(step.rows)), count)
        batches = [{name: value.numpy() for name, value in batch.items()} for batch in found]
        program, hlo = build(config, step, source, options.schedule, batches[:reference_steps])
    program.save(folder, hlo, batches)
    if options.neighbor_attention:
        save_state(os.path.join(folder, INITIAL_FILE), _neighbor_attention(program))


def build(
    config: AlbertConfig,
    step: Step,
    source: RecordSource,
    schedule: dict[str, float],
    reference_batches: Sequence[dict[str, np.ndarray]] = (),
) -> tuple[Program, bytes]:
    """Returns a program and its serialized HLO; TensorFlow makes steps of `reference_batches`."""
    from albert_tf.tasks.pretraining.task import PretrainingTask

    function = StepFunction(step, PretrainingTask(config, source), source, **schedule)
    hlo = function.lower()
    parameters = _parameters(function)
    updates = _updates(function.lower("hlo"), parameters)
    reference: dict[str, Any] = {}
    if reference_batches:
        weights = function.model.named_weights()
        for parameter in parameters:
            if parameter.kind == WEIGHT:
                value = initial_value(parameter, SEED, config.initializer_range)
                weights[parameter.name].assign(value)
        reference = _reference(function, reference_batches)
    (predictions,) = (p.shape[1] for p in parameters if p.name == "masked_lm_ids")
    program = Program(
        step=dataclasses.asdict(step),
        config=config.to_dict(),
        schedule=schedule,
        flops=step.rows * training_flops(config, step.seq_length, predictions),
        parameters=tuple(parameters),
        metrics=tuple(function.metric_names),
        updates=updates,
        seed=SEED,
        stddev=config.initializer_range,
        reference=reference,
    )
    return program, hlo


def _source(
    config: AlbertConfig, step: Step, batches: int, folder: str, share: float
) -> RecordSource:
    """Returns records of random tokens, of which a share is masked."""
    from albert_tf.data import records
    from albert_tf.tasks.pretraining.data import open_records

    path = os.path.join(folder, "random.tfrecord")
    columns = random_columns(config, step.seq_length, batches * step.rows, share)
    layout = records.pretraining_features(step.seq_length, predictions_of(step.seq_length, share))
    records.write_shard(path, records.encode_examples(columns, layout))
    return open_records(path, config)


def _parameters(function: StepFunction) -> list[Parameter]:
    """Returns what the program's parameters are."""
    import tensorflow as tf

    names: dict[int, tuple[str, str]] = {id(function.optimizer.iterations): (STEP, "step")}
    for kind, variables in (
        (WEIGHT, function.model.named_weights()),
        (SLOT, function.optimizer.named_slots),
    ):
        names.update({id(variable): (kind, name) for name, variable in variables.items()})
    parameters = []
    for name, value in function.arguments():
        shape, dtype = tuple(value.shape), value.dtype.name
        if id(value) in names:
            kind, official = names[id(value)]
            filled = _fill(value) if kind == WEIGHT else None
            parameters.append(Parameter(kind, official, shape, dtype, filled))
        elif isinstance(value, tf.Variable) or not name:
            raise AlbertError(f"The step captures {name or 'a tensor'} of shape {shape}.")
        else:
            parameters.append(Parameter(BATCH, name, shape, dtype))
    return parameters


def _fill(variable: Any) -> float | None:
    """Returns the number that a variable is filled with; None for random numbers."""
    values = variable.numpy()
    return float(values.flat[0]) if (values == values.flat[0]).all() else None


def _updates(text: str, parameters: list[Parameter]) -> tuple[int, ...]:
    """Returns the number of the parameter that each output but the first replaces.

    The first line of the HLO text names inputs and outputs that share memory.

    Raises:
      AlbertError: the outputs are not the metrics and every part of the state once.
    """
    header = text[: text.index("\n")]
    pairs = {int(output): int(number) for output, number in _ALIAS.findall(header)}
    updates = tuple(pairs.get(i, -1) for i in range(1, len(pairs) + 1))
    state = [i for i, parameter in enumerate(parameters) if parameter.is_state]
    if sorted(updates) != state:
        raise AlbertError("The program's outputs are not the metrics and the state of a step.")
    return updates


def _neighbor_attention(program: Program) -> dict[str, np.ndarray]:
    """Returns the initial weights that `attend_to_neighbors` changes."""
    from albert_tf.modeling.encoder import AlbertEncoder
    from albert_tf.modeling.neighbor_attention import attend_to_neighbors

    encoder = AlbertEncoder(AlbertConfig.from_dict(program.config))
    weights = encoder.named_weights()
    initial = {
        p.name: initial_value(p, program.seed, program.stddev) for p in program.of_kind(WEIGHT)
    }
    for name, weight in weights.items():
        weight.assign(initial[name])
    attend_to_neighbors(encoder)
    values = {name: weight.numpy() for name, weight in weights.items()}
    return {name: v for name, v in values.items() if not np.array_equal(v, initial[name])}


def _reference(function: StepFunction, batches: Sequence[dict[str, np.ndarray]]) -> dict[str, Any]:
    """Returns the metrics of steps that TensorFlow makes, and the norms of the state after them."""
    import tensorflow as tf

    values = np.stack(function.run_uncompiled(batches))
    state = {**function.model.named_weights(), **function.optimizer.named_slots}
    norms = {k: float(np.linalg.norm(v.numpy().astype(np.float64))) for k, v in state.items()}
    metrics = {k: v.tolist() for k, v in zip(function.metric_names, values.T.astype(float))}
    return {"tensorflow": tf.__version__, "metrics": metrics, "norms": norms}
