# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Faster forms of the model's operations, with their gradients."""
