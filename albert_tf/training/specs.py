# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""RunConfig, TrainSpec and EvalSpec: the settings and the data of a run."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from albert_tf.data.context import InputFn
from albert_tf.errors import AlbertError
from albert_tf.io.files import path_of
from albert_tf.io.json_values import short_repr
from albert_tf.optimization import OPTIMIZERS

if TYPE_CHECKING:
    from albert_tf.data.pipeline import RecordSource

STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")
AUTO = "auto"
FLOAT32, BFLOAT16, FLOAT16 = "float32", "mixed_bfloat16", "mixed_float16"
PRECISIONS = (AUTO, FLOAT32, BFLOAT16, FLOAT16)
EMBEDDINGS, ENCODER = FREEZABLE = ("embeddings", "encoder")
#: Devices count steps, and take seeds, as int32.
MAX_STEPS = MAX_SEED = 2**31 - 1
#: Larger batches fit into no memory.
_MAX_BATCH = 2**20
#: Devices compute in float32: smaller numbers are 0 there, and those from the limit on infinite.
_SMALLEST, _LIMIT = 2.0**-126, 2.0**128
WARN, STOP = ON_DIVERGENCE = ("warn", "stop")


def check_number(name: str, value: float, positive: bool = False) -> None:
    """Raises AlbertError unless a value is finite and not negative; if `positive`, not 0 either.

    It must be so in float32, too.
    """
    least = _SMALLEST if positive else 0
    if not (isinstance(value, numbers.Real) and least <= value < _LIMIT):
        least = "above 0" if positive else "of at least 0"
        raise AlbertError(
            f"{name}={short_repr(value)} must be a number {least} that float32 can hold."
        )


def check_integer(name: str, value: int, least: int = 1, most: int = MAX_STEPS) -> None:
    """Raises AlbertError unless a value is an integer from `least` to `most`."""
    if not (isinstance(value, int) and least <= value <= most):
        raise AlbertError(f"{name}={short_repr(value)} must be an integer from {least} to {most}.")


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """What to train on and for how long.

    Attributes:
      input_fn: yields the training batches from a step on; a pure function of its context.
      max_steps: the global step at which to stop.
      data_fingerprint: identifies the data; a resumed run must have the same one.
      data_description: describes the data, as JSON values; stored with the run.
      time_budget: the seconds that `max_steps` were planned for; stored with the run. None: they
        were given.
    """

    input_fn: InputFn
    max_steps: int
    data_fingerprint: str = ""
    data_description: Mapping[str, object] = dataclasses.field(default_factory=dict)
    time_budget: float | None = None

    def __post_init__(self) -> None:
        """Raises AlbertError for an impossible number of steps."""
        check_integer("`max_steps`", self.max_steps)

    @classmethod
    def of(
        cls, source: RecordSource, max_steps: int, time_budget: float | None = None
    ) -> TrainSpec:
        """Returns the spec that trains on these records up to a global step."""
        return cls(
            input_fn=source.train_input_fn,
            max_steps=max_steps,
            data_fingerprint=source.fingerprint,
            data_description=source.description,
            time_budget=time_budget,
        )


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """What to evaluate on.

    Attributes:
      input_fn: yields the evaluation batches, once.
      every_steps: training steps between two evaluations; None: evaluate only at the end.
      max_steps: the most batches to evaluate; None: all.
      name: of the data, for the terminal and the logs.
      examples: the examples behind the batches, for `Task.metrics`; None if the outputs of
        `Task.predict` suffice.
      fingerprint: identifies the data; values of other data are not compared with its own.
    """

    input_fn: InputFn
    every_steps: int | None = None
    max_steps: int | None = None
    name: str = "eval"
    examples: object = None
    fingerprint: str = ""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The settings of a run, except for its task and its data.

    Attributes:
      output_dir: folder of checkpoints, logs and results.
      train_batch_size: examples of one optimizer step, over all replicas and micro-batches.
      eval_batch_size: examples of one evaluation or prediction batch, over all replicas.
      gradient_accumulation_steps: micro-batches that a training batch is split into, to save
        memory.
      recompute: recompute the activations of each layer in the backward pass, to save memory.
      optimizer: "lamb" or "adamw".
      learning_rate: the peak rate, as used (already scaled).
      num_warmup_steps: length of the linear warm-up.
      start_warmup_step: first step of the warm-up.
      poly_power: exponent of the polynomial decay.
      shallow_layers: number of layers in the first steps (Gong et al., 2019, "Efficient Training of
        BERT by Progressively Stacking"); the layers must share all their weights. None: all layers
        from the start.
      num_shallow_steps: number of steps with `shallow_layers`.
      weight_decay_rate: decoupled weight decay.
      clip_norm: global gradient norm above which gradients are scaled down.
      bias_correction: use bias-corrected moments (You et al.) instead of the official numerics.
      precision: "float32", "mixed_bfloat16", "mixed_float16" with dynamic loss scaling, for GPUs
        without bfloat16, or "auto" for the best one that the devices compute fast in.
      jit_compile: compile forward and backward pass with XLA: True, False, or "auto" for where
        that should be faster: on one GPU, with batches of one length.
      seed: of initial weights and dropout.
      init_checkpoint: initial weights; None for random ones.
      freeze: the part of the model not to train, one of FREEZABLE; None: train all. To freeze
        other parts, set `layer.trainable = False` in `Task.build_model`.
      strategy: one of STRATEGIES.
      tpu_name, tpu_zone, gcp_project: the Cloud TPU, for strategy "tpu".
      steps_per_loop: the most steps that run on the device without returning to the host.
      save_checkpoints_steps: steps between checkpoints.
      keep_checkpoint_max: number of checkpoints to keep, apart from the best one.
      log_every_steps: steps between two entries of metrics.jsonl and TensorBoard.
      max_nonfinite_steps: number of skipped steps in a row that count as a divergence and end the
        run.
      on_divergence: one of ON_DIVERGENCE: what to do if the loss rises, see docs/divergence.md.
      early_stopping_evals: number of evaluations without a new best that end the run; 0: never.
        Those up to `num_shallow_steps` do not count, and select no best weights.
    """

    output_dir: str
    train_batch_size: int = 4096
    eval_batch_size: int = 64
    gradient_accumulation_steps: int = 1
    recompute: bool = False
    optimizer: str = "lamb"
    learning_rate: float = 0.00176
    num_warmup_steps: int = 3125
    start_warmup_step: int = 0
    poly_power: float = 1.0
    shallow_layers: int | None = None
    num_shallow_steps: int = 0
    weight_decay_rate: float = 0.01
    clip_norm: float = 1.0
    bias_correction: bool = False
    precision: str = "float32"
    jit_compile: bool | str = AUTO
    seed: int = 12345
    init_checkpoint: str | None = None
    freeze: str | None = None
    strategy: str = "default"
    tpu_name: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None
    steps_per_loop: int = 1000
    save_checkpoints_steps: int = 5000
    keep_checkpoint_max: int = 5
    log_every_steps: int = 100
    max_nonfinite_steps: int = 10
    on_divergence: str = WARN
    early_stopping_evals: int = 0

    #: Fields that determine the final weights; a resumed run must have the same values.
    DECISIVE: ClassVar[tuple[str, ...]] = (
        "train_batch_size",
        "optimizer",
        "learning_rate",
        "num_warmup_steps",
        "start_warmup_step",
        "poly_power",
        "shallow_layers",
        "num_shallow_steps",
        "weight_decay_rate",
        "clip_norm",
        "bias_correction",
        "precision",
        "seed",
        "init_checkpoint",
    )

    def __post_init__(self) -> None:
        """Raises AlbertError for invalid values."""
        if self.output_dir:
            object.__setattr__(self, "output_dir", path_of(self.output_dir, "output directory"))
        if not self.output_dir:
            raise AlbertError("`output_dir` is needed: checkpoints and results are written there.")
        for name, choices in (
            ("strategy", STRATEGIES),
            ("optimizer", OPTIMIZERS),
            ("precision", PRECISIONS),
            ("jit_compile", (AUTO, True, False)),
            ("on_divergence", ON_DIVERGENCE),
            ("freeze", (None, *FREEZABLE)),
        ):
            value = getattr(self, name)
            if value not in choices:
                listed = ", ".join(map(str, choices))
                raise AlbertError(f"`{name}`={short_repr(value)} is unknown; use one of {listed}.")
        if self.strategy == "tpu" and self.precision == FLOAT16:
            raise AlbertError(
                f"`precision`={FLOAT16} is for GPUs; a TPU computes in bfloat16: use "
                f"`precision`={BFLOAT16}."
            )
        for name in ("train_batch_size", "eval_batch_size"):
            check_integer(f"`{name}`", getattr(self, name), most=_MAX_BATCH)
        for name in (
            "gradient_accumulation_steps",
            "steps_per_loop",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
            "log_every_steps",
            "max_nonfinite_steps",
        ):
            check_integer(f"`{name}`", getattr(self, name))
        if self.shallow_layers is not None:
            check_integer("`shallow_layers`", self.shallow_layers)
        for name in (
            "num_shallow_steps",
            "num_warmup_steps",
            "start_warmup_step",
            "early_stopping_evals",
            "seed",
        ):
            check_integer(f"`{name}`", getattr(self, name), least=0)
        if (self.shallow_layers is None) != (self.num_shallow_steps == 0):
            raise AlbertError("Give both `shallow_layers` and `num_shallow_steps`, or neither.")
        for name in ("learning_rate", "clip_norm"):
            check_number(f"`{name}`", getattr(self, name), positive=True)
        for name in ("weight_decay_rate", "poly_power"):
            check_number(f"`{name}`", getattr(self, name))

    def check_shallow_steps(self, max_steps: int) -> None:
        """Raises AlbertError if no step of a run of `max_steps` trains all layers."""
        if self.num_shallow_steps >= max_steps:
            raise AlbertError(
                f"`num_shallow_steps`={self.num_shallow_steps:,} must be less than the "
                f"{max_steps:,} steps of the run, so that the last ones train all layers."
            )

    def layers_at(self, step: int) -> int | None:
        """Returns the number of layers that a step trains; steps count from 0. None: all layers."""
        return self.shallow_layers if step < self.num_shallow_steps else None

    def warmup_note(self, max_steps: int) -> str | None:
        """Returns a warning if `max_steps` end before the warm-up does, else None."""
        end = self.start_warmup_step + self.num_warmup_steps
        if not self.num_warmup_steps or end < max_steps:
            return None
        share = max(0, max_steps - 1 - self.start_warmup_step) / self.num_warmup_steps
        return (
            f"Warning: the warm-up ends at step {end:,}, but training ends at step {max_steps:,}: "
            f"the learning rate reaches {share:.0%} of its peak {self.learning_rate:g}. Shorten "
            "the warm-up, or train for more steps."
        )


def check_train_batch(config: RunConfig, replicas: int) -> None:
    """Raises AlbertError unless replicas and micro-batches divide the training batch evenly."""
    parts = replicas * config.gradient_accumulation_steps
    if config.train_batch_size % parts:
        raise AlbertError(
            f"`train_batch_size`={config.train_batch_size} is not divisible by {parts} "
            "(replicas × gradient_accumulation_steps)."
        )


def check_eval_batch(config: RunConfig, replicas: int) -> None:
    """Raises AlbertError unless replicas divide the evaluation batch evenly."""
    if config.eval_batch_size % replicas:
        raise AlbertError(
            f"`eval_batch_size`={config.eval_batch_size} is not divisible by {replicas} (replicas)."
        )
