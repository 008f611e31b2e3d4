# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts text to token ids with SentencePiece or WordPiece."""
