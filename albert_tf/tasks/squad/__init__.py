# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering on SQuAD 1.1 and 2.0: reading, windows, answers and their scores."""
