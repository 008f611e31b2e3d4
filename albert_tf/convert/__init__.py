# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretrained models of every origin: read, checked variable by variable, and written again."""
