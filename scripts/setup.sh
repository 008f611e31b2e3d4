#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/setup.sh [FOLDER]     makes FOLDER (.venv) with the versions for its Python
#   scripts/setup.sh --current    makes .venv-current with those for Python 3.12 and newer
#
# Makes a virtual environment with the pinned requirements and this package; done already, it
# returns at once. Changes nothing outside the project folder but pip's download cache. Uses the
# interpreter that PYTHON names, otherwise python3 if its version fits, otherwise the newest that
# fits. The two sets of versions are in requirements.txt.

set -euo pipefail
cd "$(dirname "$0")/.."

readonly needed_mb=4000
readonly log=runs/setup.log
if [[ ${1:-} == --current ]]; then
  readonly venv=.venv-current oldest=10
else
  readonly venv=${1:-.venv} oldest=9
fi
if [[ $venv != .venv* || $venv == */* ]]; then
  # A broken environment is removed, which must not happen to any other folder.
  echo "error: $venv cannot be the environment's folder; give a name that begins with .venv." >&2
  exit 1
fi
readonly pythons="Python 3.$oldest-3.13"
readonly candidates="python3 python3.13 python3.12 python3.11 python3.10 python3.9 python"

die() {
  echo "error: $1" >&2
  exit 1
}

# A virtual environment is bound to the folder it was made in, so the path is part of the hash.
hash=$({ pwd; cat requirements.txt requirements-dev.txt pyproject.toml; } | cksum | cut -d' ' -f1)
readonly stamp="$venv/.installed-$hash"
if [[ -f $stamp ]] && $venv/bin/python -c '' 2>/dev/null; then
  exit 0
fi

is_suitable() {
  "$1" -c 'import ensurepip, sys, venv
sys.exit(not (3, int(sys.argv[1])) <= sys.version_info[:2] <= (3, 13))' "$oldest" >/dev/null 2>&1
}

make_venv() {
  local candidate free_mb
  free_mb=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1024))
  if ((free_mb < needed_mb)); then
    die "Only $free_mb MB of disk are free here; the set-up needs $needed_mb MB."
  fi
  if [[ -n ${PYTHON:-} ]]; then
    is_suitable "$PYTHON" || die "PYTHON=$PYTHON is not a $pythons with venv; name another."
  fi
  for candidate in ${PYTHON:-$candidates}; do
    if is_suitable "$candidate"; then
      echo "Making $venv with $("$candidate" --version)"
      "$candidate" -m venv $venv >>"$log" 2>&1 ||
        die "$candidate could not make $venv; see $log."
      return
    fi
  done
  make_venv_with_uv
}

make_venv_with_uv() {
  local uv python
  echo "No $pythons found: getting one with uv, inside this folder"
  export UV_CACHE_DIR=$PWD/.uv/cache UV_PYTHON_INSTALL_DIR=$PWD/.uv/python
  uv=$(command -v uv || true)
  if [[ -z $uv ]]; then
    uv=$PWD/.uv/bin/uv
    python=$(command -v python3 || command -v python) ||
      die "No Python was found; install $pythons (or uv) and run make again."
    [[ -x $uv ]] || "$python" -m pip install --prefix .uv --ignore-installed uv >>"$log" 2>&1 ||
      die "uv could not be installed ($(why)); install $pythons (or uv) and run make again."
  fi
  "$uv" venv --seed --python 3.13 $venv >>"$log" 2>&1 ||
    die "uv could not get Python 3.13 ($(why)); install $pythons and run make again."
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
if [[ -e $venv ]] && ! is_suitable $venv/bin/python; then
  echo "Removing the broken $venv"
  rm -rf $venv
fi
[[ -e $venv ]] || make_venv

requirements=requirements-dev.txt
if [[ $venv == .venv-current ]]; then
  # The lines for Python 3.12 and newer, whatever the Python is.
  requirements=$venv/requirements.txt
  cat requirements.txt requirements-dev.txt |
    sed '/^-r /d; /; python_version < /d; s/; python_version >= .*//' >$requirements
fi

echo "Installing the pinned requirements into $venv (about 2 GB, some minutes; log: $log)"
pip_install() {
  $venv/bin/python -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1
}
{
  pip_install -r $requirements && pip_install --no-build-isolation --no-deps -e .
} | tee -a "$log" | awk '/^ *Downloading / && !/metadata/ {
  split($2, wheel, "-"); print "  " wheel[1], wheel[2], $3, $4; fflush()
}' || die "The requirements could not be installed ($(why)); run make again to continue."
rm -f $venv/.installed-*
touch "$stamp"
echo "Set-up finished."
