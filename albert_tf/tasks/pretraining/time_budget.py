# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans pretraining for a given time: lengths, masks, batches, steps and rates of its stages.

Small models learn context in a fraction of the time on short sequences with many masks. So training
begins with short sequences and goes on with the length of the records, with many masks throughout
(docs/results/time_to_quality.md).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.training.specs import RunConfig

PLAN_FILE = "plan.json"
#: Length of the first stage, and the share of the time that it takes.
SHORT_LENGTH, SHORT_SHARE = 32, 0.4
#: Folder of its run, below the output directory.
SHORT_FOLDER = f"length-{SHORT_LENGTH}"
#: Positions of a training step, at least; longer runs have larger batches, up to the largest one.
_POSITIONS, _MOST_POSITIONS = 2048, 1 << 15
#: Steps of a stage above which the batch doubles.
_MOST_STEPS = 12_000
#: Peak learning rates of LAMB for steps of _POSITIONS, of the first stage and of the last one.
_SHORT_RATE, _RATE = 0.008, 0.005
#: Share of the tokens to predict, and the most words of a span.
_MASKED_LM_PROB, _NGRAM = 0.4, 1
#: Share of a stage's steps that warm up, at least so many, at most this share. Models that warm up
#: in a few dozen steps stay at the unigram baseline for hundreds (docs/results/tuning.md).
_WARMUP_SHARE, _WARMUP_STEPS, _MOST_WARMUP_SHARE = 0.04, 200, 0.2
#: Checkpoints of a stage.
_SAVES = 20


@dataclasses.dataclass(frozen=True)
class Outline:
    """A stage before its steps are known.

    Attributes:
      max_seq_length: tokens of a sequence.
      masked_lm_prob, ngram: share of the tokens to predict, and the most words of a span; None:
        those of the records.
      time_share: of the whole run.
      learning_rate: peak rate of LAMB for steps of _POSITIONS. It grows with the square root of
        the batch (You et al., 2020, section 4.3).
    """

    max_seq_length: int
    masked_lm_prob: float | None
    ngram: int | None
    time_share: float
    learning_rate: float

    @property
    def batch_size(self) -> int:
        """Sequences of the smallest step, whose seconds `make_plan` wants."""
        return max(1, _POSITIONS // self.max_seq_length)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a run: training with one length and one schedule.

    Attributes:
      folder: of its run, below the output directory; "" is the output directory itself.
      max_seq_length: tokens of a sequence.
      train_batch_size: sequences of a step.
      num_train_steps, num_warmup_steps, learning_rate: of its own schedule.
      masked_lm_prob, ngram: see Outline.
    """

    folder: str
    max_seq_length: int
    train_batch_size: int
    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    masked_lm_prob: float | None = None
    ngram: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether this stage ends the run."""
        return not self.folder

    def run_config(
        self, common: RunConfig, output_dir: str, init_checkpoint: str | None
    ) -> RunConfig:
        """Returns the settings of the stage; `common` has those that all stages share."""
        return dataclasses.replace(
            common,
            output_dir=output_dir,
            init_checkpoint=init_checkpoint,
            train_batch_size=self.train_batch_size,
            learning_rate=self.learning_rate,
            num_warmup_steps=self.num_warmup_steps,
            save_checkpoints_steps=max(1, self.num_train_steps // _SAVES),
        )

    def __str__(self) -> str:
        """Describes the stage for the terminal."""
        masks = f", {self.masked_lm_prob:.0%} of them masked" if self.masked_lm_prob else ""
        return (
            f"{self.num_train_steps:,} steps of {self.train_batch_size} sequences of "
            f"{self.max_seq_length} tokens{masks}, peak learning rate {self.learning_rate:.3g}"
        )


def outline_stages(max_seq_length: int, is_compact: bool) -> list[Outline]:
    """Returns the stages for records.

    Args:
      max_seq_length: of the records.
      is_compact: whether they can be shortened and masked otherwise.
    """
    if not is_compact:
        return [Outline(max_seq_length, None, None, 1.0, _RATE)]
    masks = (_MASKED_LM_PROB, _NGRAM)
    if max_seq_length < 2 * SHORT_LENGTH:
        return [Outline(max_seq_length, *masks, 1.0, _SHORT_RATE)]
    return [
        Outline(SHORT_LENGTH, *masks, SHORT_SHARE, _SHORT_RATE),
        Outline(max_seq_length, *masks, 1 - SHORT_SHARE, _RATE),
    ]


def make_plan(
    seconds: float, outlines: Sequence[Outline], step_seconds: Sequence[float]
) -> list[Stage]:
    """Plans the stages of a run.

    Args:
      seconds: how long all stages may take together.
      outlines: of `outline_stages`.
      step_seconds: how long a step of `batch_size` sequences of each takes.

    Raises:
      AlbertError: the time is too short for a single step.
    """
    stages = []
    for outline, step in zip(outlines, step_seconds):
        length, left = outline.max_seq_length, outline.time_share * seconds
        steps = left / step
        factor = 1
        while steps / factor > _MOST_STEPS and factor * _POSITIONS < _MOST_POSITIONS:
            factor *= 2
        steps = int(steps / factor)
        if steps < 1:
            raise AlbertError(
                f"The time is too short: {max(0.0, left):.0f} seconds are left for sequences of "
                f"{length} tokens, and one step takes {step:.2g}. Give more time, or a smaller "
                "model."
            )
        stages.append(
            Stage(
                folder="" if outline is outlines[-1] else SHORT_FOLDER,
                max_seq_length=length,
                train_batch_size=factor * outline.batch_size,
                num_train_steps=steps,
                num_warmup_steps=_warmup_steps(steps),
                learning_rate=outline.learning_rate * factor**0.5,
                masked_lm_prob=outline.masked_lm_prob,
                ngram=outline.ngram,
            )
        )
    return stages


def _warmup_steps(steps: int) -> int:
    wanted = max(int(_WARMUP_SHARE * steps), _WARMUP_STEPS)
    return min(wanted, int(_MOST_WARMUP_SHARE * steps))


def save_plan(folder: str, seconds: float, stages: Sequence[Stage]) -> None:
    """Writes the plan of a run to its output directory."""
    values = {"seconds": seconds, "stages": [dataclasses.asdict(stage) for stage in stages]}
    files.write_json(os.path.join(folder, PLAN_FILE), values)


def load_plan(folder: str, seconds: float) -> list[Stage] | None:
    """Reads the plan of a run that is resumed; None if the output directory has none.

    Raises:
      AlbertError: the run was planned for another time, or the file is damaged.
    """
    path = os.path.join(folder, PLAN_FILE)
    if not files.exists(path):
        return None
    values = files.read_object(path, "plan")
    if values.get("seconds") != seconds:
        raise AlbertError(
            f"{folder} holds a run planned for {values.get('seconds')} seconds, not {seconds:g}; "
            "give the same time to resume it, or another output directory."
        )
    stages = values.get("stages")
    if not isinstance(stages, list) or not stages:
        raise AlbertError(f"{path} has no stages; delete the output directory and begin again.")
    return [from_json(Stage, stage, f"A stage in {path}") for stage in stages]
