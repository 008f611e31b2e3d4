# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How scripts start, and flags that all of them treat alike."""
