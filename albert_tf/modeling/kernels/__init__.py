# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything that is there for speed: fused operations with their gradients, and the graph mode."""
