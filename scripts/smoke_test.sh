#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests marked `smoke` in two environments: with the set of versions in requirements.txt
# that .venv does not have, on Python 3.13 or 3.12 if .venv is older, otherwise on 3.11, 3.10 or 3.9;
# and with the newest of everything, the extras included, that pyproject.toml allows on this Python.
# The environments are kept, for example in .venv-python3.13 and .venv-newest, so that the next run
# takes minutes. If there is no such Python, or no package index to install from, it runs nothing and
# says so.

set -euo pipefail
cd "$(dirname "$0")/.."

readonly limit=300
pythons="python3.13 python3.12"
if .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
  pythons="python3.11 python3.10 python3.9"
fi

report() {
  echo "Smoke test of $1."
}

# Not all tests: to collect them takes as long as to run these.
readarray -t tests < <(grep -rl --include='test_*.py' 'mark\.smoke' tests | sort)

# smoke ENVIRONMENT NAME
smoke() {
  SECONDS=0
  if ! timeout $limit "$1/bin/python" -m pytest -q -m 'smoke and not slow' -n auto "${tests[@]}"; then
    report "$2 failed, or took longer than $limit s" >&2
    exit 1
  fi
  report "$2 passed in $SECONDS s"
}

# pyenv's python3.13 works only where its settings name that version; the interpreter always does.
python=
for name in $pythons; do
  for candidate in "$name" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/"$name"; do
    if "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
      python=$candidate
      break 2
    fi
  done
done
if [[ -z $python ]]; then
  report "the other versions: not run, as there is no ${pythons// / or }"
  exit 0
fi

readonly venv=.venv-$name newest=.venv-newest
if ! output=$(PYTHON=$python scripts/setup.sh "$venv" 2>&1); then
  if [[ $output == *"package index cannot be reached"* ]]; then
    report "the other versions: not run, as the package index cannot be reached"
    exit 0
  fi
  echo "$output" >&2
  exit 1
fi
smoke "$venv" "the versions for $name"

[[ -e $newest ]] || "$python" -m venv $newest
$newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
  --upgrade-strategy eager --editable '.[beam,hub,onnx,plots]' pytest pytest-xdist
smoke $newest "the newest versions on $name"
