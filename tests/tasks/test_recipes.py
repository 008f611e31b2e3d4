# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.tasks.fine_tune_config import FineTuneConfig, load_recipe
from albert_tf.tasks.flags import define_finetuning_flags, run_settings
from tests.support.script_flags import parsed_flags

RECIPE = {
    "learning_rate": 1e-5, "train_step": 800, "warmup_proportion": 0.25, "train_batch_size": 16
}  # fmt: skip


@pytest.fixture
def parsed(monkeypatch):
    """Returns the config made of a recipe and of arguments of a script."""

    def parse(recipe, *arguments):
        module = "albert_tf.tasks.fine_tune_config"
        monkeypatch.setattr(f"{module}.load_recipe", lambda name, model: recipe)
        with parsed_flags(
            lambda: define_finetuning_flags("Examples"), "--output_dir=runs/x", *arguments
        ):
            settings = run_settings(FineTuneConfig)
            return FineTuneConfig.from_recipe("some", AlbertConfig.load("albert_tiny"), **settings)

    return parse


@pytest.mark.parametrize(
    ("preset", "rate"),
    [
        ("albert_tiny", 1e-4),
        ("albert_base_v1", 5e-5),
        ("albert_large_v1", 1e-5),
        ("albert_xlarge_v2", 1e-5),
        ("albert_xxlarge_v2", 1e-5),
    ],
)
def test_custom_recipe_has_lower_rates_for_large_models(parsed, preset, rate):
    settings = parsed(load_recipe("custom", AlbertConfig.load(preset)))
    assert settings.learning_rate == rate
    # A tenth of 1000 steps is warm-up, as without a recipe.
    assert (settings.steps(10), settings.training_run(1000).num_warmup_steps) == (1000, 100)


def test_a_task_without_a_recipe_is_refused():
    with pytest.raises(AlbertError, match="There is no recipe for the task 'sonnets'"):
        load_recipe("sonnets", AlbertConfig.load("albert_base_v1"))


def test_given_flags_override_the_recipe_even_at_their_default(parsed):
    settings = parsed(RECIPE, "--learning_rate=3e-5", "--train_batch_size=32")
    run = settings.training_run(800)
    assert (run.learning_rate, run.num_warmup_steps, run.train_batch_size) == (3e-5, 200, 32)


def test_warm_up_keeps_the_recipes_proportion_when_the_steps_change(parsed):
    settings = parsed(RECIPE, "--num_train_epochs=2")
    assert settings.steps(1000) == 125
    assert settings.training_run(125).num_warmup_steps == 31
    config = parsed(RECIPE, "--train_step=100", "--warmup_step=3")
    assert config.training_run(100).num_warmup_steps == 3


def test_steps_and_epochs_together_and_unknown_settings_are_refused(parsed):
    for epochs in (0, 2):
        with pytest.raises(AlbertError, match="not both"):
            parsed({}, "--train_step=5", f"--num_train_epochs={epochs}")
    with pytest.raises(AlbertError, match="unknown settings: lerning_rate"):
        FineTuneConfig.from_recipe("rte", AlbertConfig.load("albert_tiny"), lerning_rate=1.0)


def test_a_share_of_warm_up_replaces_the_steps_of_the_recipe():
    model = AlbertConfig.load("albert_base_v2")
    made = FineTuneConfig.from_recipe("race", model, output_dir="x", warmup_proportion=0.3)
    assert made.training_run(1000).num_warmup_steps == 300
    both = {"warmup_proportion": 0.3, "warmup_step": 5}
    with pytest.raises(AlbertError, match=r"^Give `warmup_step` or `warmup_proportion`, not both"):
        FineTuneConfig.from_recipe("race", model, output_dir="x", **both)


def test_more_steps_than_can_be_counted_are_refused(parsed):
    with pytest.raises(AlbertError, match=r"^`train_step`=10.* must be an integer from 1 to 2147"):
        parsed(RECIPE, f"--train_step={10**20}")
    settings = parsed(RECIPE, "--num_train_epochs=1e20")
    with pytest.raises(AlbertError, match=r"^`max_steps`=.* must be an integer from 1 to"):
        settings.steps(1000)
