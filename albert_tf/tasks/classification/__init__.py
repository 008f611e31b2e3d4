# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Classification of texts and pairs of texts, and regression on them."""
