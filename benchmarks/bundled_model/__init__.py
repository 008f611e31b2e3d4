# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the bundled model is worth, and how its files are made."""
