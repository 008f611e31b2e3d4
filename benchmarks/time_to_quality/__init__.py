# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Quality of a model after a given time of training."""
