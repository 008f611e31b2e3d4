# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The pretraining step as one XLA program, run on a GPU by JAX's client."""
