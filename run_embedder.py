# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts albert_tf/scripts/run_embedder.py."""

from albert_tf.scripts.run_embedder import __doc__, main  # noqa: F401

if __name__ == "__main__":
    main()
