# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What each task means: model, loss, metrics and files."""
