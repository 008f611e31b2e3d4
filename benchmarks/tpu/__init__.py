# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps compiled for TPUs without a TPU."""
