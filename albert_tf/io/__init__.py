# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Files, locks, text, JSON, progress, processes and signals."""
