# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of fine-tuning; see `__main__.py`."""
