# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands of `albert` that use a model; each is the command line of a method of the Python API."""
