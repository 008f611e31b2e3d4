# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiments of Lan et al. (2020), run with this project's own scripts."""
