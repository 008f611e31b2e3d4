# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The one exception the user is meant to read."""


class AlbertError(Exception):
    """Bad input, told in one sentence: what is wrong, where, and what to do.

    Scripts print it as ``error: <sentence>`` and exit with status 1; no stack trace is shown.
    """
