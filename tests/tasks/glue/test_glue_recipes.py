# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.tasks.fine_tune_config import FineTuneConfig, load_recipe

#: Learning rate, batch size, steps and warm-up of run_glue.sh, and of the paper for WNLI; and the
#: dropout of the paper's xxlarge model.
PUBLISHED = {
    "cola": (1e-5, 16, 5336, 320, 0.0),
    "sst-2": (1e-5, 32, 20935, 1256, 0.0),
    "mrpc": (2e-5, 32, 800, 200, 0.0),
    "sts-b": (2e-5, 16, 3598, 214, 0.0),
    "qqp": (5e-5, 128, 14000, 1000, 0.1),
    "mnli": (3e-5, 128, 10000, 1000, 0.0),
    "qnli": (1e-5, 32, 33112, 1986, 0.0),
    "rte": (3e-5, 32, 800, 200, 0.1),
    "wnli": (2e-5, 16, 2000, 250, 0.1),
}


def config(size, version=1):
    loaded = AlbertConfig.from_preset(f"albert_{size}_v{version}")
    dropout = 0.1 if version == 1 else 0.0
    return dataclasses.replace(
        loaded, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_hold_the_published_numbers(name):
    rate, batch, steps, warmup, dropout = PUBLISHED[name]
    base = FineTuneConfig.from_recipe(name, config("base"), output_dir="runs/x")
    warm_up = base.for_data(1, 1).num_warmup_steps
    found = (base.learning_rate, base.train_batch_size, base.train_step, warm_up)
    assert found == (rate, batch, steps, warmup)
    assert base.dropout is None  # The configuration's own.
    assert base.max_seq_length == 512
    assert 0 < base.eval_every_steps <= 200
    xxlarge = FineTuneConfig.from_recipe(name, config("xxlarge"), output_dir="runs/x")
    assert xxlarge.dropout == dropout
    assert (xxlarge.train_batch_size, xxlarge.train_step) == (batch, steps)


@pytest.mark.parametrize("name", PUBLISHED)
def test_larger_models_get_no_higher_rates_and_v2_models_no_dropout(name):
    rates = [
        load_recipe(name, config(size))["learning_rate"] for size in ("base", "large", "xlarge")
    ]
    assert rates == sorted(rates, reverse=True)
    assert load_recipe(name, config("xxlarge", version=2))["dropout"] == 0.0
