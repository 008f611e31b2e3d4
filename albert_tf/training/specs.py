# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""RunConfig, TrainSpec and EvalSpec: the settings and the data of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from albert_tf.data.context import DataSource, InputFn
from albert_tf.errors import AlbertError
from albert_tf.optimization import OPTIMIZERS
from albert_tf.pretrained import DEFAULT, NONE
from albert_tf.pretrained.locate import NAMES
from albert_tf.settings import (
    ABOVE_0,
    Settings,
    check_integer,
    count_setting,
    setting,
    training_setting,
)

STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")
AUTO = "auto"
FLOAT32, BFLOAT16, FLOAT16 = "float32", "mixed_bfloat16", "mixed_float16"
PRECISIONS = (AUTO, FLOAT32, BFLOAT16, FLOAT16)
ENCODER = "encoder"
FREEZABLE = ("embeddings", ENCODER)
#: Larger batches fit into no memory.
_MAX_BATCH = 2**20
WARN, STOP = ON_DIVERGENCE = ("warn", "stop")


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """What to train on and for how long.

    Attributes:
      input_fn: yields the training batches from a step on; a pure function of its context.
      max_steps: the global step at which to stop.
      data_fingerprint: identifies the data; a resumed run must have the same one.
      data_description: describes the data, as JSON values; stored with the run.
    """

    input_fn: InputFn
    max_steps: int
    data_fingerprint: str = ""
    data_description: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises AlbertError for an impossible number of steps."""
        check_integer("`max_steps`", self.max_steps)

    @classmethod
    def of(cls, source: DataSource, max_steps: int) -> TrainSpec:
        """Returns the spec that trains on this data up to a global step."""
        return cls(source.train_input_fn, max_steps, source.fingerprint, source.description)


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
class RunConfig(Settings):
    """The settings of a run, except for its task and its data.

    Raises:
      AlbertError: a value is impossible, or does not fit another one.
    """

    output_dir: str = setting(
        help="Folder for checkpoints, metrics and results. If it holds a run with the same "
        "settings, it is resumed; a run with other settings is an error.",
        path=True,
    )
    init_checkpoint: str | None = training_setting(
        None,
        "Weights to start from: the output directory of another run (its best weights), the name "
        "of a checkpoint without .index, a folder or archive (.tar.gz, .zip) of the TF1 release, a "
        f"Hugging Face folder, a SavedModel of TF-Hub, {NAMES}, or that of a bundled model "
        f"({DEFAULT}); {NONE} for random weights. A file or folder takes precedence over a name. "
        f"Default: {NONE} for pretraining; {DEFAULT} for fine-tuning, if no other configuration or "
        "vocabulary is given.",
        path=True,
    )
    train_batch_size: int = training_setting(
        4096, "Examples per optimizer step, over all devices.", minimum=1, maximum=_MAX_BATCH
    )
    eval_batch_size: int = count_setting(64, "Examples per evaluation batch.", maximum=_MAX_BATCH)
    gradient_accumulation_steps: int = training_setting(
        1,
        "Split each training batch into this number of parts and process them one after the other: "
        "less memory, the same result.",
        minimum=1,
    )
    recompute: bool = training_setting(
        False,
        "Keep only the output of each layer and compute the rest again in the backward pass: much "
        "less memory, the same result, steps up to a third longer.",
    )
    optimizer: str = training_setting(
        "lamb",
        "The releases use lamb for pretraining and adamw for fine-tuning.",
        choices=OPTIMIZERS,
    )
    learning_rate: float = training_setting(0.00176, "Peak learning rate.", minimum=ABOVE_0)
    num_warmup_steps: int = training_setting(3125, "Steps of linear warm-up.")
    shallow_layers: int | None = training_setting(
        None,
        "Number of layers in the first num_shallow_steps steps. Steps with fewer layers take less "
        "time and learn almost as much. The layers must share all their weights. Evaluations "
        "always use all layers, and do not select best weights before.",
        minimum=1,
        source="Gong et al., 2019, Efficient Training of BERT by Progressively Stacking",
    )
    num_shallow_steps: int = training_setting(
        0, "Number of steps with shallow_layers; the others train all layers."
    )
    clip_norm: float = setting(
        1.0,
        "Global gradient norm above which gradients are scaled down.",
        minimum=ABOVE_0,
        flag=None,
    )
    precision: str = setting(
        FLOAT32,
        "mixed_bfloat16 computes in bfloat16 and keeps weights in float32: faster on TPUs and on "
        "CPUs and GPUs with bfloat16 units. mixed_float16 is for GPUs without them, such as V100 "
        "and T4; it scales the loss so that small gradients do not vanish. auto: mixed_bfloat16 or "
        "else mixed_float16 on devices with units for it, float32 elsewhere; a resumed run keeps "
        "its precision.",
        choices=PRECISIONS,
    )
    jit_compile: bool | str = setting(
        AUTO,
        "Compile forward and backward pass with XLA: true, false, or auto, which does so on one "
        "GPU if all batches have one length. TPUs always do.",
        choices=(AUTO, True, False),
    )
    seed: int = setting(
        12345, "Seed of initial weights, dropout and data order.", flag="random_seed"
    )
    freeze: str | None = training_setting(
        None,
        "The part of the model to freeze. embeddings: the embeddings of pieces, segments and "
        "positions. encoder: everything except the task's head; this is faster and takes less "
        "memory; use a higher learning rate. Default: none.",
        choices=(None, *FREEZABLE),
    )
    strategy: str = setting(
        "default",
        "default: one device; mirrored: all GPUs of this machine, at least two; multi_worker: the "
        "machines in TF_CONFIG; tpu: a Cloud TPU.",
        choices=STRATEGIES,
    )
    tpu_name: str | None = setting(
        None,
        "Name or grpc:// address of the Cloud TPU; local: the one attached to this machine. "
        "Default: the environment's TPU_NAME, else local.",
    )
    save_checkpoints_steps: int = training_setting(5000, "Steps between checkpoints.", minimum=1)
    keep_checkpoint_max: int = training_setting(
        5, "Number of checkpoints to keep, besides the best one.", minimum=1
    )
    log_every_steps: int = training_setting(
        100,
        "Steps between entries of metrics.jsonl, and the most that run on the device at once.",
        minimum=1,
    )
    on_divergence: str = training_setting(
        WARN,
        "What to do if the mean loss of a window of steps is more than halfway back from its best "
        "to its first value. warn: print where and advice, once. stop: exit with an error that "
        "names the last good checkpoint.",
        choices=ON_DIVERGENCE,
    )
    early_stopping_evals: int = setting(
        0, "Stop after this number of evaluations without improvement; 0: never.", needs="do_eval"
    )

    #: Fields that determine the final weights; a resumed run must have the same values.
    DECISIVE: ClassVar[tuple[str, ...]] = (
        "train_batch_size",
        "optimizer",
        "learning_rate",
        "num_warmup_steps",
        "shallow_layers",
        "num_shallow_steps",
        "clip_norm",
        "precision",
        "seed",
        "init_checkpoint",
    )

    def __post_init__(self) -> None:
        """Raises AlbertError for invalid values."""
        if not self.output_dir:
            raise AlbertError("`output_dir` is needed: checkpoints and results are written there.")
        super().__post_init__()
        if self.tpu_name and self.strategy != "tpu":
            raise AlbertError("`tpu_name` needs `strategy`=tpu.")
        if self.strategy == "tpu" and self.precision == FLOAT16:
            raise AlbertError(
                f"`precision`={FLOAT16} is for GPUs; a TPU computes in bfloat16: use "
                f"`precision`={BFLOAT16}."
            )
        if (self.shallow_layers is None) != (self.num_shallow_steps == 0):
            raise AlbertError("Give both `shallow_layers` and `num_shallow_steps`, or neither.")
