# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans pretraining for a given time: batch, steps, learning rate, masks, attention and layers.

Small models learn context soon with many masks, with heads that start with the neighboring tokens,
and with fewer layers at first (docs/results/time_to_quality.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json
from albert_tf.training.specs import RunConfig
from albert_tf.weights.run_folder import RUN_CONFIG, RunFolder

#: Positions of a training step, at least; longer runs have larger batches, up to the largest one.
_POSITIONS, _MOST_POSITIONS = 2048, 1 << 15
#: Steps of a run above which the batch doubles. In the same time, many steps with small batches
#: learn more than few with large ones (docs/results/tuning.md).
_MOST_STEPS = 50_000
#: Peak learning rate of LAMB. It does not grow with the batch: at twice this rate, a run with steps
#: of four times as many positions diverged after 1,800 steps (docs/results/tuning.md).
_RATE = 0.005
#: Share of the tokens to predict and the most words of a span, where the records leave it open.
_MASKED_LM_PROB, _NGRAM = 0.4, 1
#: Share of the steps that warm up, at least so many steps, at most this share. Models that warm up
#: in a few dozen steps stay at the unigram baseline for hundreds (docs/results/tuning.md).
_WARMUP_SHARE, _WARMUP_STEPS, _MOST_WARMUP_SHARE = 0.04, 100, 0.2
#: Share of the time in which models of at least this many layers train half of them; in half of the
#: time instead, they learned less (docs/results/tuning.md).
_SHALLOW_SHARE, _FEWEST_LAYERS = 0.7, 4
#: Checkpoints of a run, at least, and the most seconds between two of them.
_SAVES, _SAVE_SECONDS = 20, 900.0
#: Fields of RunConfig that a plan sets and the run records.
_RECORDED = ("train_batch_size", "num_warmup_steps", "learning_rate", "shallow_layers",
             "num_shallow_steps")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run does in its time.

    Attributes:
      seconds: the time that it was planned for.
      train_batch_size: sequences of a step.
      num_train_steps, num_warmup_steps, learning_rate: of its schedule.
      masked_lm_prob, ngram: share of the tokens to predict, and the most words of a span; None:
        those of the records.
      neighbor_attention: see albert_tf.modeling.neighbor_attention.
      shallow_layers, num_shallow_steps: see RunConfig.
    """

    seconds: float
    train_batch_size: int
    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    masked_lm_prob: float | None
    ngram: int | None
    neighbor_attention: bool
    shallow_layers: int | None = None
    num_shallow_steps: int = 0

    def run_config(self, common: RunConfig) -> RunConfig:
        """Returns the settings of the run; `common` has those that are not planned."""
        return dataclasses.replace(
            common,
            train_batch_size=self.train_batch_size,
            learning_rate=self.learning_rate,
            num_warmup_steps=self.num_warmup_steps,
            shallow_layers=self.shallow_layers,
            num_shallow_steps=self.num_shallow_steps,
            save_checkpoints_steps=self._save_checkpoints_steps(),
        )

    def _save_checkpoints_steps(self) -> int:
        # The steps of all layers are the slower ones.
        share = 1 - _SHALLOW_SHARE if self.shallow_layers else 1.0
        step_seconds = share * self.seconds / (self.num_train_steps - self.num_shallow_steps)
        return max(1, min(self.num_train_steps // _SAVES, int(_SAVE_SECONDS / step_seconds)))


def masks(is_compact: bool) -> dict[str, float | int | None]:
    """Returns `masked_lm_prob` and `ngram` of plans for compact or for masked records."""
    if not is_compact:
        return {"masked_lm_prob": None, "ngram": None}
    return {"masked_lm_prob": _MASKED_LM_PROB, "ngram": _NGRAM}


def smallest_batch(max_seq_length: int, parts: int = 1) -> int:
    """Returns the sequences of the smallest step, whose duration `make_plan` needs.

    Args:
      max_seq_length: tokens of a sequence.
      parts: devices times micro-batches, which a step must divide into.
    """
    rows = max(1, _POSITIONS // max_seq_length)
    return -(-rows // parts) * parts


def shallow_layers(config: AlbertConfig) -> int | None:
    """Returns the number of layers that the first steps of a plan train; None: all."""
    if config.num_hidden_layers < _FEWEST_LAYERS:
        return None
    layers = config.num_hidden_layers // 2
    try:
        config.with_layers(layers)
    except AlbertError:
        return None
    return layers


def make_plan(
    seconds: float,
    left: float,
    step_seconds: Mapping[int | None, float],
    smallest: int,
    is_compact: bool,
    neighbor_attention: bool = True,
) -> Plan:
    """Plans a run.

    Args:
      seconds: the time of the whole run.
      left: how much of it is left for training.
      step_seconds: duration of a step of `smallest` sequences by the number of layers: for all
        layers (None) and, if the plan is to start with fewer, for `shallow_layers`.
      smallest: see `smallest_batch`.
      is_compact: whether the records leave the masks open.
      neighbor_attention: whether the model's heads are large enough for it.

    Raises:
      AlbertError: the time is too short for a single step.
    """
    shallow = next((layers for layers in step_seconds if layers), None)
    share = _SHALLOW_SHARE if shallow else 0.0
    shallow_steps = share * left / step_seconds[shallow]
    steps = shallow_steps + (1 - share) * left / step_seconds[None]
    factor = 1
    while steps / factor > _MOST_STEPS and factor * _POSITIONS < _MOST_POSITIONS:
        factor *= 2
    steps = int(steps / factor)
    if steps < 1:
        raise AlbertError(
            f"The time is too short: {max(0.0, left):.0f} seconds are left for training, and one "
            f"step takes {step_seconds[None]:.2g}. Give more time, or a smaller model."
        )
    shallow_steps = min(int(shallow_steps / factor), steps - 1)
    warmup_steps = max(int(_WARMUP_SHARE * steps), _WARMUP_STEPS)
    return Plan(
        seconds=seconds,
        train_batch_size=factor * smallest,
        num_train_steps=steps,
        num_warmup_steps=min(warmup_steps, int(_MOST_WARMUP_SHARE * steps)),
        learning_rate=_RATE,
        **masks(is_compact),
        neighbor_attention=neighbor_attention,
        shallow_layers=shallow if shallow_steps else None,
        num_shallow_steps=shallow_steps,
    )


def recorded_plan(folder: str, seconds: float, is_compact: bool) -> Plan | None:
    """Returns the plan of the run in an output directory; None if there is no run.

    Args:
      folder: the output directory.
      seconds: the time that the run must have been planned for.
      is_compact: whether the records leave the masks open.

    Raises:
      AlbertError: the run was not planned, or for another time; or its record is damaged.
    """
    run_folder = RunFolder(folder)
    recorded = run_folder.recorded()
    if recorded is None:
        run_folder.check_no_remains()
        return None
    run, train = recorded["run"], recorded["train"]
    planned = train.get("time_budget")
    if planned != seconds:
        time = f"planned for {planned} seconds" if planned else "of a given number of steps"
        raise AlbertError(
            f"{folder} holds a run {time}, not one planned for {seconds:g} seconds; give the same "
            "settings to resume it, or another `output_dir`."
        )
    values = {name: run.get(name) for name in _RECORDED}
    values["num_train_steps"] = train.get("max_steps")
    values["neighbor_attention"] = recorded["task"].get("neighbor_attention")
    values = {"seconds": seconds, **values, **masks(is_compact)}
    return from_json(Plan, values, run_folder.file(RUN_CONFIG))
