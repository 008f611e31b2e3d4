# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The exceptions the user is meant to read."""


class AlbertError(Exception):
    """Bad input, told in one sentence: what is wrong, where, and what to do.

    Scripts print it as ``error: <sentence>`` and exit with status 1; no stack trace is shown.
    """

    #: Keras would add all arguments of the layer that raised the error to its message.
    _keras_call_info_injected = True


class StoppedError(AlbertError):
    """Work stopped for a reason that is not in its input; the same command continues it."""


class DivergedError(AlbertError):
    """A training that went wrong, or a model that computes no numbers; other runs may do well."""


class DamagedError(AlbertError):
    """What a program of ours wrote is cut off or altered; an older copy may do in its place."""
