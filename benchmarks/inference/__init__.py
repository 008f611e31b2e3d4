# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How fast models answer; see `__main__.py`."""
