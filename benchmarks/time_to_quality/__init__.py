# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How good a model is after so many minutes of training."""
