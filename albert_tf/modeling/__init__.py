# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The ALBERT encoder and its heads, one concept a file."""
