# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The ALBERT encoder, its heads and the models, one concept per file."""
