# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.tasks.fine_tune_config import FineTuneConfig, load_recipe
from albert_tf.tasks.flags import define_finetuning_flags, run_settings
from albert_tf.tasks.tagging.data import TaggingSpec
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
            lambda: define_finetuning_flags("Examples", TaggingSpec),
            "--output_dir=runs/x",
            "--do_train",
            *arguments,
        ):
            settings = run_settings(FineTuneConfig)
            return FineTuneConfig.from_recipe("some", AlbertConfig.load("albert_tiny"), **settings)

    return parse


@pytest.mark.parametrize(
    ("recipe", "examples", "given", "steps", "warmup", "every"),
    [
        ("custom", 10, [], 7, 1, 1),  # 20 passes.
        ("custom", 3000, [], 500, 50, 50),
        ("custom", 200_000, [], 18_750, 1875, 1875),  # 3 passes.
        ("custom", 3000, ["--num_train_epochs=2", "--warmup_step=3"], 188, 3, 19),
        ("race", 87_000, [], 12_000, 1000, 1000),
        ("race", 87_866, ["--train_step=60"], 60, 5, 1000),
        ("squad1.1", 87_599, [], 3650, 365, None),
        ("squad2.0", 300, [], 125, 12, 13),
        ("rte", 10, [], 800, 200, 100),
    ],
)
def test_the_length_fits_the_data_but_for_benchmarks(
    parsed, recipe, examples, given, steps, warmup, every
):
    recipe = load_recipe(recipe, AlbertConfig.load("albert_base_v1"))
    run = parsed(recipe, *given).for_data(examples, examples)
    assert (run.train_step, run.num_warmup_steps, run.eval_every_steps) == (steps, warmup, every)


def test_a_task_without_a_recipe_is_refused():
    with pytest.raises(AlbertError, match="There is no recipe for the task 'sonnets'"):
        load_recipe("sonnets", AlbertConfig.load("albert_base_v1"))


def test_given_flags_override_the_recipe_even_at_their_default(parsed):
    settings = parsed(RECIPE, "--learning_rate=3e-5", "--train_batch_size=32")
    run = settings.for_data(10, 10)
    assert (run.learning_rate, run.num_warmup_steps, run.train_batch_size) == (3e-5, 200, 32)


def test_steps_and_epochs_together_and_unknown_settings_are_refused(parsed):
    for epochs in (0, 2):
        with pytest.raises(AlbertError, match="not both"):
            parsed({}, "--train_step=5", f"--num_train_epochs={epochs}")
    with pytest.raises(AlbertError, match="unknown settings: lerning_rate"):
        FineTuneConfig.from_recipe("rte", AlbertConfig.load("albert_tiny"), lerning_rate=1.0)


def test_a_share_of_warm_up_replaces_the_steps_of_the_recipe():
    model = AlbertConfig.load("albert_base_v2")
    made = FineTuneConfig.from_recipe("race", model, output_dir="x", warmup_proportion=0.3)
    assert made.for_data(87_866, 87_866).num_warmup_steps == 3600
    both = {"warmup_proportion": 0.3, "warmup_step": 5}
    with pytest.raises(AlbertError, match=r"^Give `warmup_step` or `warmup_proportion`, not both"):
        FineTuneConfig.from_recipe("race", model, output_dir="x", **both)


def test_more_steps_than_can_be_counted_are_refused(parsed):
    with pytest.raises(AlbertError, match=r"^`train_step`=10.* must be an integer from 1 to 2147"):
        parsed(RECIPE, f"--train_step={10**20}")
    settings = parsed(RECIPE, "--num_train_epochs=1e20")
    with pytest.raises(AlbertError, match=r"^`max_steps`=.* must be an integer from 1 to"):
        settings.for_data(1000, 1000)
