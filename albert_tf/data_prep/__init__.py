# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Offline builders: raw text to sentences, vocabulary and TFRecords."""
