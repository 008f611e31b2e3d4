# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""PretrainingConfig: the settings of pretraining."""

from __future__ import annotations

import dataclasses

from albert_tf.data.masking_options import MAX_NGRAM
from albert_tf.errors import AlbertError
from albert_tf.optimization import scaled_learning_rate
from albert_tf.settings import ABOVE_0, count_setting, setting, training_setting, with_default
from albert_tf.training.specs import FLOAT32, RunConfig

#: Settings that `time_budget` plans.
PLANNED = ("train_batch_size", "num_train_steps", "num_warmup_steps",
           "learning_rate", "shallow_layers", "num_shallow_steps", "masked_lm_prob", "ngram",
           "neighbor_attention", "init_checkpoint", "save_checkpoints_steps",
           "optimizer")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PretrainingConfig(RunConfig):
    """What to pretrain on, and how.

    Raises:
      AlbertError: a value is impossible, or does not fit another one.
    """

    learning_rate: float | None = with_default(
        RunConfig,
        "learning_rate",
        None,
        "Default: 0.00176 for a batch of 4096 (Lan et al., 2020), with adamw 1e-4 for one of 256 "
        "(Devlin et al., 2019); in proportion to the square root of the batch (You et al., 2020; "
        "Malladi et al., 2022).",
    )
    init_checkpoint: str | None = with_default(
        RunConfig,
        "init_checkpoint",
        None,
        "Without training it is what do_eval evaluates, if output_dir has no checkpoint.",
        needs=None,
    )
    precision: str | None = with_default(
        RunConfig, "precision", None, "Default: float32, or auto with time_budget."
    )
    input_file: str | None = setting(
        None,
        "Training records: a comma list of TFRecord files, globs, or folders written by "
        "albert create-pretraining-data.",
        path=True,
    )
    eval_input_file: str | None = setting(
        None, "Held-out records to evaluate on, in the same form.", path=True, needs="do_eval"
    )
    albert_config_file: str | None = setting(
        None,
        "Model configuration: a JSON file, also Hugging Face's config.json, or a preset's name "
        "such as albert_base_v2, which is an architecture without weights (its vocab_size then "
        "follows the records). Default: that of the initial checkpoint.",
        path=True,
    )
    max_seq_length: int | None = count_setting(
        None,
        "Read compact records at this length. Shorter sequences are random parts of their text, "
        "without sentence order. Default: the length of the records, which masked records must "
        "have.",
    )
    masked_lm_prob: float | None = training_setting(
        None,
        "Share of the tokens to predict when training on compact records. Default: the one they "
        "were built for. Held-out records are not affected.",
        minimum=0.01,
        maximum=1,
    )
    ngram: int | None = training_setting(
        None,
        "Most words of a masked span when training on compact records. Default: the one they were "
        "built for.",
        minimum=1,
        maximum=MAX_NGRAM,
    )
    neighbor_attention: bool = training_setting(
        False,
        "Two heads of the first layer start with the previous and the next token, so that small "
        "models learn context sooner. For random weights.",
    )
    num_train_steps: int = training_setting(125000, "Training steps.", minimum=1)
    eval_every_steps: int | None = count_setting(
        None,
        "Steps between evaluations during training. Default: evaluate at the end only.",
        needs="do_eval",
    )
    max_eval_steps: int = count_setting(
        100,
        "Maximum number of batches per evaluation. If they are not all of the data, results have "
        "its evaluated_share.",
    )
    time_budget: float | None = training_setting(
        None,
        "Train for about so many minutes on this machine. Plans batch, steps and learning rate "
        "from the measured speed; a resumed run keeps its plan. Small models learn more in the "
        "same time this way: with neighbor_attention, half of the layers at first and, on compact "
        "records, masked_lm_prob 0.4 and ngram 1. For small models trained from random weights. "
        "Measured in runs of 36 minutes and, with all layers from the start, of up to two hours; "
        "longer runs are possible.",
        minimum=ABOVE_0,
    )

    DECISIVE = (*RunConfig.DECISIVE, "time_budget")

    def __post_init__(self) -> None:
        """Fills in what depends on other settings, and checks the values."""
        if self.learning_rate is None:
            rate = scaled_learning_rate(self.train_batch_size, self.optimizer)
            object.__setattr__(self, "learning_rate", rate)
        if self.precision is None:
            precision = "auto" if self.time_budget else FLOAT32
            object.__setattr__(self, "precision", precision)
        super().__post_init__()
        if self.neighbor_attention and self.init_checkpoint:
            raise AlbertError(
                "`neighbor_attention` is for random weights, but `init_checkpoint` has trained "
                "ones; leave one of them out."
            )
        if self.time_budget and self.strategy in ("multi_worker", "tpu"):
            raise AlbertError(
                "`time_budget` is for processors and GPUs of one machine; for clusters and TPUs "
                "give `num_train_steps`, `train_batch_size` and `learning_rate`."
            )
