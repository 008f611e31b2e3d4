# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""GLUE: its tasks, their files, their scores, and submissions to its server."""
