# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""LAMB and AdamW against the release, tensorflow-addons and NumPy; skipped steps; the rate."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.keras2 import keras
from albert_tf.optimization import OPTIMIZERS, scaled_learning_rate
from albert_tf.optimization.optimizer import EXCLUDED, AlbertOptimizer, learning_rate_at
from albert_tf.tasks.pretraining.config import PretrainingConfig

KERNEL, LAYER_NORM, BIAS = "encoder/dense/kernel", "encoder/LayerNorm/gamma", "encoder/dense/bias"
SHAPES = {KERNEL: (4, 3), LAYER_NORM: (3,), BIAS: (3,)}

# Values of two steps with the same gradient, from the release's optimizers.
UNIT_VECTORS = {
    ("lamb", KERNEL): [(0.0784081, -0.2216055, 0.32161), (0.0554161, -0.2446068, 0.3446145)],
    ("adamw", KERNEL): [(-0.215331, -0.5155286, 0.6155948), (-0.6391264, -0.9394976, 1.0396218)],
    ("lamb", BIAS): [(-0.2152309, -0.5157286, 0.6158948), (-0.6392418, -0.9402131, 1.0405374)],
    ("adamw", BIAS): [(-0.2152309, -0.5157286, 0.6158948), (-0.6392418, -0.9402131, 1.0405374)],
}


@pytest.mark.parametrize(("name", "weight"), UNIT_VECTORS)
def test_two_steps_give_the_values_of_the_release(name, weight):
    variable = tf.Variable([0.1, -0.2, 0.3], name="unrelated")
    optimizer = AlbertOptimizer(name, 0.1, {weight: variable})
    for expected in UNIT_VECTORS[name, weight]:
        optimizer.apply_gradients_if(tf.constant(True), {weight: tf.constant([0.01, 0.02, -0.03])})
        np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=1e-6)


def addons_optimizer(name):
    """tensorflow-addons' LAMB with what the release does differently."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It says that it is no longer developed.
        addons = pytest.importorskip("tensorflow_addons.optimizers")

    class Addons(addons.LAMB):
        def _prepare_local(self, device, dtype, state):
            super()._prepare_local(device, dtype, state)
            exact = {"one_minus_beta_1_t": 1 - 0.9, "one_minus_beta_2_t": 1 - 0.999}
            powers = {"beta_1_power": 0.0, "beta_2_power": 0.0}
            for coefficient, value in {**exact, **powers}.items():
                state[device, dtype][coefficient] = tf.constant(value, dtype)

        def _do_use_weight_decay(self, variable):
            return not EXCLUDED.search(variable.name)

        def _do_layer_adaptation(self, variable):
            return name == "lamb" and not EXCLUDED.search(variable.name)

    return Addons(0.01, weight_decay=0.01)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("compiled", [None, False, True], ids=["eager", "graph", "xla"])
def test_results_equal_those_of_tensorflow_addons_in_every_bit(compiled, name):
    reference = addons_optimizer(name)
    rng = np.random.default_rng(0)
    shapes = {**SHAPES, "zeros": (3,)}
    start = {k: rng.normal(size=s) * (k != "zeros") for k, s in shapes.items()}
    steps = [
        {k: tf.constant(rng.normal(size=s) * (number != 3), tf.float32) for k, s in shapes.items()}
        for number in range(8)
    ]
    ours, theirs = (
        {k: tf.Variable(v, dtype=tf.float32, name=k) for k, v in start.items()} for _ in range(2)
    )
    reference._create_all_weights(list(theirs.values()))
    optimizer = AlbertOptimizer(name, 0.01, ours)

    def step(gradients):
        optimizer.apply_gradients_if(tf.constant(True), gradients)

    def reference_step(gradients):
        reference.apply_gradients([(gradients[k], v) for k, v in theirs.items()])

    if compiled is not None:
        step, reference_step = (
            tf.function(f, autograph=False, jit_compile=compiled) for f in (step, reference_step)
        )
    for gradients in steps:
        step(gradients)
        reference_step(gradients)
    for k, weight in theirs.items():
        np.testing.assert_array_equal(ours[k], weight, err_msg=k)
        for moment in ("m", "v"):
            slot = optimizer.named_slots[f"{k}/adam_{moment}"]
            np.testing.assert_array_equal(slot, reference.get_slot(weight, moment), err_msg=k)


def test_a_weight_of_zeros_moves():
    variable = tf.Variable([0.0, 0.0])
    optimizer = AlbertOptimizer("lamb", 0.1, {KERNEL: variable})
    optimizer.apply_gradients_if(tf.constant(True), {KERNEL: tf.constant([1.0, -1.0])})
    np.testing.assert_allclose(variable.numpy(), [-0.1 / np.sqrt(0.1), 0.1 / np.sqrt(0.1)], 1e-4)


def test_a_sparse_gradient_is_applied_as_the_sum_of_its_parts():
    weights = [tf.Variable([[1.0], [2.0], [3.0]]) for _ in range(2)]
    parts = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([1, 1]), [3, 1])
    for weight, gradient in zip(weights, (parts, tf.convert_to_tensor(parts))):
        optimizer = AlbertOptimizer("lamb", 0.1, {KERNEL: weight})
        optimizer.apply_gradients_if(tf.constant(True), {KERNEL: gradient})
    np.testing.assert_array_equal(weights[0].numpy(), weights[1].numpy())


ONE_DEVICE = "one device"
TWO_REPLICAS = "two replicas"


def make_strategy(name):
    if name == ONE_DEVICE:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def bits(variables):
    return {k: v.numpy().view(np.uint32).copy() for k, v in variables.items()}


def build(strategy, name):
    rng = np.random.default_rng(1)
    with strategy.scope():
        weights = {k: tf.Variable(rng.normal(size=s), dtype=tf.float32) for k, s in SHAPES.items()}
        return weights, AlbertOptimizer(name, 0.1, weights)


def train_step_fn(strategy, weights, optimizer, jit_compile):
    """A step whose gradient is summed over replicas and skipped if not finite."""

    @tf.function(jit_compile=jit_compile)
    def train_steps(scales):
        def replica_step(scale):
            context = tf.distribute.get_replica_context()
            local = [tf.cos(tf.range(tf.size(w), dtype=tf.float32)) for w in weights.values()]
            local = [tf.reshape(g, w.shape) * scale for g, w in zip(local, weights.values())]
            gradients, norm = tf.clip_by_global_norm(context.all_reduce("sum", local), 1.0)
            optimizer.apply_gradients_if(tf.math.is_finite(norm), dict(zip(weights, gradients)))

        for scale in scales:
            strategy.run(replica_step, args=(scale,))

    return train_steps


CASES = [
    (ONE_DEVICE, "lamb", False),
    (ONE_DEVICE, "adamw", False),
    (ONE_DEVICE, "lamb", True),
    (TWO_REPLICAS, "lamb", False),
    (TWO_REPLICAS, "adamw", False),
]


@pytest.mark.parametrize(("strategy_name", "name", "jit_compile"), CASES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_skipped_step_changes_no_bit_but_counts(strategy_name, name, jit_compile, bad):
    strategy = make_strategy(strategy_name)
    weights, optimizer = build(strategy, name)
    train_steps = train_step_fn(strategy, weights, optimizer, jit_compile)
    train_steps(tf.constant([1.0, -0.5]))
    variables = {**weights, **optimizer.named_slots}
    before = bits(variables)
    train_steps(tf.constant([bad, bad]))
    after = bits(variables)
    for k in variables:
        np.testing.assert_array_equal(after[k], before[k], err_msg=k)
    assert optimizer.iterations.numpy() == 4

    train_steps(tf.constant([1.0, 1.0]))
    for k, value in bits(variables).items():
        assert (value != before[k]).any(), k
        assert np.isfinite(value.view(np.float32)).all(), k


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_replicas_apply_the_sum_once_and_stay_equal(name):
    """Two replicas sum their gradients to twice that of one device."""
    results = {}
    for strategy_name, scale in ((ONE_DEVICE, 0.02), (TWO_REPLICAS, 0.01)):
        strategy = make_strategy(strategy_name)
        weights, optimizer = build(strategy, name)
        train_step_fn(strategy, weights, optimizer, False)(tf.fill([3], scale))
        results[strategy_name] = {k: w.numpy() for k, w in weights.items()}
        for k, weight in weights.items():
            replicas = [r.numpy() for r in strategy.experimental_local_results(weight)]
            for replica in replicas[1:]:
                np.testing.assert_array_equal(replica, replicas[0], err_msg=k)
    for k in SHAPES:
        np.testing.assert_allclose(results[TWO_REPLICAS][k], results[ONE_DEVICE][k], atol=1e-6)


@pytest.mark.parametrize("strategy_name", [ONE_DEVICE, TWO_REPLICAS])
def test_only_official_names_exclude_weights(strategy_name):
    """Also for the wrapped variables of mixed-precision layers."""
    strategy, names = make_strategy(strategy_name), {KERNEL: "LayerNorm", LAYER_NORM: "plain"}
    with strategy.scope():
        weights = {}
        for official, name in names.items():
            layer = keras.layers.Dense(3, name=name, dtype="mixed_bfloat16")
            layer(tf.zeros([1, 4]))
            weights[official] = layer.kernel
        optimizer = AlbertOptimizer("lamb", 0.1, weights)
    assert "LayerNorm" in weights[KERNEL].name
    before = {k: w.numpy() for k, w in weights.items()}
    gradients = dict.fromkeys(weights, tf.ones([4, 3]))
    step = functools.partial(optimizer.apply_gradients_if, tf.constant(True), gradients)
    tf.function(lambda: strategy.run(step))()
    moved = {k: np.linalg.norm(w.numpy() - before[k]) for k, w in weights.items()}
    # With the trust ratio a weight moves by lr times its norm, otherwise by lr times the update's.
    assert moved[KERNEL] == pytest.approx(0.1 * np.linalg.norm(before[KERNEL]), rel=1e-3)
    assert moved[LAYER_NORM] == pytest.approx(0.1 * np.sqrt(12) * 0.1 / np.sqrt(0.001), rel=1e-3)


RELEASE = {"learning_rate": 0.00176, "num_train_steps": 125000, "num_warmup_steps": 3125}
RELEASE_STEPS = [0, 1562, 3124, 3125, 62500, 125000, 126000]
RELEASE_RATES = [0.0, 0.00087972, 0.00175944, 0.00171600, 0.00088, 0.0, 0.0]


def test_the_schedule_of_the_release_has_its_published_rates():
    rates = learning_rate_at(tf.constant(RELEASE_STEPS, tf.int64), **RELEASE)
    assert rates.dtype == tf.float32
    np.testing.assert_allclose(rates, RELEASE_RATES, rtol=0, atol=5e-9)
    traced = tf.function(lambda step: learning_rate_at(step, **RELEASE))
    assert traced(tf.constant(1562)) == rates[1]


def test_the_warm_up_can_be_left_out():
    assert learning_rate_at(tf.constant(0), learning_rate=0.5, num_train_steps=10) == 0.5


def test_the_rate_scales_with_the_square_root_of_the_batch():
    assert scaled_learning_rate(4096) == 0.00176
    assert scaled_learning_rate(1024) == pytest.approx(0.00088)
    assert scaled_learning_rate(64) == pytest.approx(0.00022)
    assert scaled_learning_rate(256, "adamw") == 1e-4
    assert PretrainingConfig("x", train_batch_size=1024, optimizer="adamw").learning_rate == 2e-4
