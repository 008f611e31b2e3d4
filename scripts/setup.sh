#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes .venv with the pinned requirements and this package; done already, it returns at once.
# Touches nothing outside the project folder but pip's download cache. Set PYTHON to name the
# interpreter to build on.

set -euo pipefail
cd "$(dirname "$0")/.."

readonly needed_mb=4000
readonly log=runs/setup.log

die() {
  echo "error: $1" >&2
  exit 1
}

# A virtual environment is bound to the folder it was made in, so the path is part of the hash.
hash=$({ pwd; cat requirements.txt requirements-dev.txt pyproject.toml; } | cksum | cut -d' ' -f1)
readonly stamp=".venv/.installed-$hash"
if [[ -f $stamp ]] && .venv/bin/python -c '' 2>/dev/null; then
  exit 0
fi

is_suitable() {
  "$@" -c 'import ensurepip, sys, venv; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' \
    >/dev/null 2>&1
}

make_venv() {
  local candidate free_mb
  free_mb=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1024))
  if ((free_mb < needed_mb)); then
    die "Only $free_mb MB of disk are free here; the set-up needs $needed_mb MB."
  fi
  if [[ -n ${PYTHON:-} ]]; then
    is_suitable "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.9-3.11 with venv; name another."
  fi
  for candidate in ${PYTHON:-python3.11 python3.10 python3.9 python3 python}; do
    if is_suitable "$candidate"; then
      echo "Making .venv with $("$candidate" --version)"
      "$candidate" -m venv .venv >>"$log" 2>&1 ||
        die "$candidate could not make .venv; see $log."
      return
    fi
  done
  make_venv_with_uv
}

make_venv_with_uv() {
  local uv python
  echo "No Python 3.9-3.11 found: getting one with uv, inside this folder"
  export UV_CACHE_DIR=$PWD/.uv/cache UV_PYTHON_INSTALL_DIR=$PWD/.uv/python
  uv=$(command -v uv || true)
  if [[ -z $uv ]]; then
    uv=$PWD/.uv/bin/uv
    python=$(command -v python3 || command -v python) ||
      die "No Python was found; install Python 3.9-3.11 (or uv) and run make again."
    [[ -x $uv ]] || "$python" -m pip install --prefix .uv --ignore-installed uv >>"$log" 2>&1 ||
      die "uv could not be installed ($(why)); install Python 3.9-3.11 (or uv) and run make again."
  fi
  "$uv" venv --seed --python 3.11 .venv >>"$log" 2>&1 ||
    die "uv could not get Python 3.11 ($(why)); install Python 3.9-3.11 and run make again."
}

# The likely cause of a failure, from the end of the log.
why() {
  local end
  end=$(tail -n 60 "$log")
  if grep -qiE 'no space left|disk quota' <<<"$end"; then
    echo "the disk is full"
  elif grep -qiE 'connection|timed? ?out|name resolution|network|dns|proxy|from versions: none' \
    <<<"$end"; then
    echo "the network or the package index cannot be reached"
  else
    echo "see $log"
  fi
}

mkdir -p runs
: >"$log"
if [[ -e .venv ]] && ! is_suitable .venv/bin/python; then
  echo "Removing the broken .venv"
  rm -rf .venv
fi
[[ -e .venv ]] || make_venv

echo "Installing the pinned requirements into .venv (about 2 GB, some minutes; log: $log)"
pip_install() {
  .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1
}
{
  pip_install -r requirements-dev.txt &&
    pip_install --no-build-isolation --no-deps -e .
} | tee -a "$log" | awk '/^ *Downloading / && !/metadata/ {
  split($2, wheel, "-"); print "  " wheel[1], wheel[2], $3, $4; fflush()
}' || die "The requirements could not be installed ($(why)); run make again to continue."
rm -f .venv/.installed-*
touch "$stamp"
echo "Set-up finished."
