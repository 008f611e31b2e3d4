# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The package version, apart so that reading it imports nothing."""

__version__ = "0.1.0"
