# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The Estimator: strategy, loop, checkpoints, monitors. It knows no task."""
