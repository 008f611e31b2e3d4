#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
# Checks which package imports which; the rules are in pyproject.toml. Needs Python 3.10 or newer.

set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -x .venv/bin/lint-imports ]]; then
  .venv/bin/lint-imports --no-cache
else
  echo "The imports are not checked: import-linter needs Python 3.10 or newer."
fi
