# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluates the bundled model and builds its files."""
