# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""LAMB, AdamW and the learning-rate schedule."""
