# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""LAMB and AdamW with the release's numerics, and the learning rate schedule."""

#: Names `create_optimizer` knows; here so that flags can be defined without importing TensorFlow.
OPTIMIZERS = ("lamb", "adamw")
