# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Text to token ids with SentencePiece or WordPiece."""
