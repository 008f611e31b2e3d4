# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The scripts of the project's top level, which start these modules."""
