#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
# Starts a command again and again until it succeeds; for machines that can be taken away:
#
#   scripts/keep_running.sh albert pretrain --output_dir=gs://… …
#
# Three failures in a row within a minute each are taken for a mistake in the command, and end the
# loop with the command's exit status. SIGTERM and SIGINT are passed on, as SIGTERM, and end it too.

set -uo pipefail

quick_failures=0
stopped=
while true; do
  began=$SECONDS
  "$@" &
  child=$!
  trap 'stopped=1; kill -TERM "$child"' TERM INT
  # A signal ends the waiting, not the command, which saves its work first.
  while true; do
    wait "$child"
    status=$?
    kill -0 "$child" 2>/dev/null || break
  done
  trap - TERM INT
  if ((status == 0)) || [[ -n $stopped ]]; then
    exit "$status"
  fi
  ((SECONDS - began < 60)) && ((++quick_failures)) || quick_failures=0
  if ((quick_failures == 3)); then
    echo "error: exit status $status three times within a minute; not started again." >&2
    exit "$status"
  fi
  echo "Exit status $status; starting it again in ${RETRY_SECONDS:-10} seconds." >&2
  sleep "${RETRY_SECONDS:-10}"
done
