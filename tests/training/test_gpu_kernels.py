# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds, without a GPU, operations that it would leave to the CPU, in TensorFlow's registry.

TensorFlow places an operation without a GPU kernel on the CPU, and many GPU kernels for int32 keep
their tensors in the host's memory. Either way, what is large is copied back and forth.
"""

from __future__ import annotations

import functools

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

from albert_tf import RunConfig
from albert_tf.data.context import InputContext
from albert_tf.training.estimator import Estimator
from albert_tf.training.loop import distribute
from tests.support.builders import tiny_config
from tests.support.small_tasks import PIECES, open_small_task
from tests.training.runs import train_loop

pytestmark = pytest.mark.skipif(not tf.test.is_built_with_cuda(), reason="no GPU kernels are built")

#: Bytes that may lie in the host's memory: shapes and counts do, and what belongs to a batch's
#: rows, positions or logits does not.
LIMIT = 64 * 1024
BATCH, LENGTH, PREDICTIONS = 256, 512, 77
#: Scalars, which a GPU has no kernel for.
SCALARS_ON_CPU = {"Timestamp"}  # When a batch was asked for, and when it came.
#: They copy nothing. An int32 batch comes from the host, and stays there until it is looked at.
VIEWS = {"EnsureShape", "ExpandDims", "Identity", "Reshape", "StridedSlice"}
BATCHES = {"IteratorGetNext", "Placeholder"}
CALLS = {"PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf"}
CALLS |= {"While", "StatelessWhile"}


@functools.cache
def registered(kind):
    """The kernels that a GPU can use, its own first.

    Pairs of the types that each attribute may have, and the arguments in the host's memory.
    """
    all_kernels = kernels.get_registered_kernels_for_op(kind).kernel
    return [
        ({c.name: set(c.allowed_values.list.type) for c in k.constraint}, set(k.host_memory_arg))
        for device in ("GPU", "DEFAULT")
        for k in all_kernels
        if k.device_type == device and not k.label
    ]


@functools.cache
def type_attributes(kind):
    """Names of the attributes that decide which kernel an operation gets."""
    return sorted({name for constraint, _ in registered(kind) for name in constraint})


@functools.cache
def gpu_kernel(kind, *types):
    """What lies in the host's memory with the GPU kernel of these types; None without one."""
    given = dict(zip(type_attributes(kind), types))
    for constraint, in_host_memory in registered(kind):
        if all(given[name] <= choices for name, choices in constraint.items()):
            return in_host_memory
    return None


def kernel_of(op):
    """See gpu_kernel."""

    def types(name):
        value = op.get_attr(name)
        dtypes = value if isinstance(value, list) else [value]
        return frozenset(tf.as_dtype(dtype).as_datatype_enum for dtype in dtypes)

    return gpu_kernel(op.type, *map(types, type_attributes(op.type)))


def host_tensors(op, in_host_memory):
    """Names and tensors of the inputs and outputs that lie in the host's memory."""
    if op.type in CALLS:
        # Functions and loops are handed int32 in the host's memory.
        return [("argument", tensor) for tensor in op.inputs if tensor.dtype == tf.int32]
    if not in_host_memory:
        return []
    on_host = []
    sides = (op.op_def.input_arg, op.inputs), (op.op_def.output_arg, op.outputs)
    for arguments, tensors in sides:
        rest = iter(tensors)
        for argument in arguments:
            count = 1
            if argument.number_attr:
                count = op.get_attr(argument.number_attr)
            elif argument.type_list_attr:
                count = len(op.get_attr(argument.type_list_attr))
            own = [next(rest) for _ in range(count)]
            if argument.name in in_host_memory:
                on_host += [(argument.name, tensor) for tensor in own]
    return on_host


def is_large(tensor):
    elements = tensor.shape.num_elements()
    return elements is None or elements * tensor.dtype.size > LIMIT


def comes_from_host(tensor):
    """Whether a tensor is a view of a batch, of which no device has computed anything."""
    while tensor.op.type in VIEWS:
        tensor = tensor.op.inputs[0]
    return tensor.op.type in BATCHES


def graphs_of(graph, seen):
    """A graph and those of the functions that it calls, loops and gradients included."""
    yield graph
    for name, function in graph._functions.items():
        if name not in seen:
            seen.add(name)
            yield from graphs_of(function.graph, seen)


def left_to_the_cpu(graph):
    """What a GPU cannot do, or does with large tensors in the host's memory; a line each."""
    faults = []
    for op in (op for part in graphs_of(graph, set()) for op in part.get_operations()):
        in_host_memory = kernel_of(op)
        if in_host_memory is None:
            if op.type not in SCALARS_ON_CPU or any(map(is_large, [*op.inputs, *op.outputs])):
                types = [tensor.dtype.name for tensor in [*op.inputs, *op.outputs]]
                faults.append(f"{op.type} of {types} has no GPU kernel: {op.name}")
            continue
        copies = op.type not in {*VIEWS, *CALLS}
        for name, tensor in host_tensors(op, in_host_memory):
            if is_large(tensor) and (copies or not comes_from_host(tensor)):
                what = f"{name}, {tensor.dtype.name} {tensor.shape}, in the host's memory"
                faults.append(f"{op.type} keeps {what}: {op.name}")
    return faults


def large_batches(input_fn):
    """An input function of empty batches: the columns of another one's, in realistic sizes."""

    def size_of(name, spec):
        row = list(spec.shape[1:])
        if name.startswith(("input_", "masked_lm_")):
            row[-1] = LENGTH if name.startswith("input_") else PREDICTIONS
        return [BATCH, *row]

    specs = input_fn(InputContext(BATCH)).element_spec
    batch = {name: tf.zeros(size_of(name, spec), spec.dtype) for name, spec in specs.items()}
    return lambda context: tf.data.Dataset.from_tensors(batch).repeat()


FLOAT32, BFLOAT16, FLOAT16 = "float32", "mixed_bfloat16", "mixed_float16"
FAST = [
    ("masked", FLOAT32, {"gradient_accumulation_steps": 2}),
    ("squad_2", BFLOAT16, {"recompute": True}),
    ("classification", FLOAT16, {}),
]
SLOW = [
    ("masked", BFLOAT16, {"recompute": True}),
    ("classification", BFLOAT16, {}),
    ("squad_1", FLOAT32, {}),
    ("multiple_choice", FLOAT32, {}),
    ("compact", FLOAT32, {"recompute": True}),
    ("compact", BFLOAT16, {"gradient_accumulation_steps": 2}),
    ("classification", FLOAT32, {"optimizer": "adamw"}),
    ("regression", FLOAT32, {}),
    ("regression", BFLOAT16, {}),
    ("squad_1", BFLOAT16, {}),
    ("squad_2", FLOAT32, {}),
    ("squad_2", BFLOAT16, {}),
    ("multiple_choice", BFLOAT16, {"gradient_accumulation_steps": 2}),
    ("masked", FLOAT16, {"gradient_accumulation_steps": 2, "recompute": True}),
    ("squad_2", FLOAT16, {}),
]


@pytest.mark.parametrize(
    ("name", "precision", "options"),
    [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_a_gpu_trains_evaluates_and_predicts_without_the_cpu(
    name, precision, options, tmp_path, monkeypatch
):
    # The graph is that of a machine with a GPU. Which kernels there would be, is looked up.
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    sizes = {"embedding_size": 128, "hidden_size": 256, "intermediate_size": 512}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    model = tiny_config(len(PIECES), max_position_embeddings=LENGTH, **sizes, **rates)
    task, source, held_out = open_small_task(name, model, tmp_path)
    config = RunConfig(
        str(tmp_path / "run"),
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        precision=precision,
        **options,
    )
    estimator = Estimator(task, config)
    loop = train_loop(estimator)

    batches = distribute(estimator.strategy, large_batches(source.train_input_fn), BATCH)
    train = loop._loop.get_concrete_function(iter(batches), tf.constant(1))
    assert left_to_the_cpu(train.graph) == []

    batches = distribute(estimator.strategy, large_batches(held_out.input_fn), BATCH)
    predict = estimator._predictor._step.get_concrete_function(iter(batches))
    assert left_to_the_cpu(predict.graph) == []


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda x: tf.range(30_000) == x, "Range keeps output, int32 (30000,)"),
        (lambda x: tf.unstack(tf.zeros([2], tf.uint32)), "Unpack of ['uint32'"),
    ],
)
def test_operations_left_to_the_cpu_are_detected(function, fault):
    inner = tf.function(function)
    graph = tf.function(lambda x: inner(x)).get_concrete_function(tf.TensorSpec([], tf.int32)).graph
    assert any(line.startswith(fault) for line in left_to_the_cpu(graph))
