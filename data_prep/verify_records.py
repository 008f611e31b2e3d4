# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts albert_tf/data_prep/verify_records.py."""

from albert_tf.data_prep.verify_records import __doc__, main  # noqa: F401

if __name__ == "__main__":
    main()
