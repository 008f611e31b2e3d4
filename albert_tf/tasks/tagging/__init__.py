# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tagging: entities in texts, parts of speech, and other tags of words."""
