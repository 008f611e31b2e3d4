# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Classification and regression of single texts and of pairs."""
