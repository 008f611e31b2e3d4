# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretraining: masked language model and sentence order."""
