# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts albert_tf/data_prep/create_pretraining_data.py."""

from albert_tf.data_prep.create_pretraining_data import __doc__, main  # noqa: F401

if __name__ == "__main__":
    main()
