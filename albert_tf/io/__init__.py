# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Files, processes and signals: what the other packages read, write and run with."""
