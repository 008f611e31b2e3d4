#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a script on the first machine of a Cloud TPU until it succeeds. Creates the TPU if it does
# not exist, and again after a preemption. Run it on a machine that stays, such as a laptop:
#
#   TPU=albert ZONE=us-central2-b ACCELERATOR=v4-8 VERSION=tpu-vm-tf-2.15.0-pjrt \
#     scripts/tpu_job.sh start.sh --spot
#
# start.sh must be safe to run again; further arguments go to `gcloud compute tpus tpu-vm create`.
# The TPU is deleted only if Google reports a state from which it cannot return (PREEMPTED or
# TERMINATED). If the state cannot be read, the script waits and asks again. It does not delete the
# TPU when the work is done.

set -uo pipefail

usage() {
  echo "usage: TPU=… ZONE=… ACCELERATOR=… VERSION=… scripts/tpu_job.sh start.sh [create flags]" >&2
  exit 2
}

[[ $# -ge 1 && -n ${TPU:-} && -n ${ZONE:-} && -n ${ACCELERATOR:-} && -n ${VERSION:-} ]] || usage
if [[ ! -r $1 ]]; then
  echo "error: the script $1 cannot be read." >&2
  exit 2
fi
commands=$(<"$1")
shift
wait_seconds=${WAIT_SECONDS:-60}

tpu_vm() {
  gcloud compute tpus tpu-vm "$1" "$TPU" --zone="$ZONE" "${@:2}"
}

# Prints the TPU's state; MISSING if there is none, UNKNOWN if Google could not be asked.
state() {
  local answer
  if answer=$(tpu_vm describe --format='value(state)' 2>&1); then
    # Warnings may come before the state.
    tail -n 1 <<<"$answer"
  elif [[ $answer == *NOT_FOUND* ]]; then
    echo MISSING
  else
    echo "$answer" >&2
    echo UNKNOWN
  fi
}

quick_failures=0
while true; do
  current=$(state)
  case $current in
    READY)
      began=$SECONDS
      # With a terminal (-t) a lost connection ends the commands too: two cannot share a TPU.
      tpu_vm ssh --worker=0 --command="$commands" -- -t
      status=$?
      ((status == 0)) && exit 0
      # 255 is ssh's own status: the connection failed, not the script.
      ((status != 255 && SECONDS - began < 120)) && ((++quick_failures)) || quick_failures=0
      if ((quick_failures == 3)); then
        echo "error: the script failed three times in a row with exit status $status, each time" \
          "soon after its start; not started again. The TPU $TPU still exists." >&2
        exit "$status"
      fi
      echo "The script ended with exit status $status." >&2
      ;;
    PREEMPTED | TERMINATED)
      echo "The TPU $TPU is $current; creating it again." >&2
      tpu_vm delete --quiet
      ;;&
    MISSING | PREEMPTED | TERMINATED)
      if tpu_vm create --accelerator-type="$ACCELERATOR" --version="$VERSION" "$@"; then
        continue
      fi
      echo "The TPU $TPU could not be created; trying again." >&2
      ;;
    *)
      echo "The TPU $TPU is in the state $current; waiting." >&2
      ;;
  esac
  sleep "$wait_seconds"
done
