# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Records on disk and the tf.data readers that feed them to training."""
