#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
# The check between two edits: ruff, the import of every script, the tests marked `golden`, and the
# tests of the Python files that changed since the last commit (or in it, if none changed since).
# It takes about a minute, and longer if the tests of these files do.

set -euo pipefail
cd "$(dirname "$0")/.."
readonly python=.venv/bin/python

$python -m ruff check --quiet .
$python -m ruff format --check --quiet .
$python -c '
import convert_checkpoint, export_tfhub, run_classifier, run_embedder, run_pretraining, run_race, run_squad, run_tagger
import data_prep.create_pretraining_data, data_prep.split_sentences
import data_prep.train_sentencepiece, data_prep.verify_records
'

changed=$(git diff --name-only HEAD -- '*.py' && git ls-files --others --exclude-standard '*.py')
changed=${changed:-$(git show --name-only --format= HEAD -- '*.py')}
# Tests mirror the tree; albert_tf/tasks/squad/data.py has tests/tasks/squad/test_squad_data.py.
readarray -t tests < <(
  for path in $changed; do
    mirrored=${path#albert_tf/}
    case $path in
      tests/*/test_*.py | tests/test_*.py) if [[ -e $path ]]; then echo "$path"; fi ;;
      *) compgen -G "tests/$(dirname "$mirrored")/test_*$(basename "$mirrored")" || true ;;
    esac
  done | sort -u
)
readarray -t golden < <(grep -rl --include='test_*.py' 'mark\.golden' tests | sort)

run() {
  $python -m pytest -q -n auto --dist=worksteal "$@"
}
run -m golden "${golden[@]}"
if ((${#tests[@]})); then
  run "${tests[@]}" || (($? == 5))  # 5: all of them are `slow` or `tooling`.
fi
