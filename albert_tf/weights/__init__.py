# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads pretrained weights of every format and checks them variable by variable."""
