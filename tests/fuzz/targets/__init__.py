# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The files that are fuzzed: a valid tiny one of each kind, and what a program does with it."""

from tests.fuzz.targets import models, records, runs, tasks, texts

#: By name.
TARGETS = {
    **records.TARGETS,
    **texts.TARGETS,
    **tasks.TARGETS,
    **models.TARGETS,
    **runs.TARGETS,
}
