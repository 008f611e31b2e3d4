# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: RACE, and questions with any number of options."""
