# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of texts: trained on texts, on pairs that belong together, or on scored pairs."""
