#!/usr/bin/env bash
# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
#
# A job for Slurm, one process a machine with all of its GPUs:
#
#   sbatch --nodes=4 --gpus-per-node=8 scripts/slurm_train.sh python run_pretraining.py \
#     --strategy=multi_worker --output_dir=/shared/runs/base …
#
#SBATCH --job-name=albert
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@180
#
# Three minutes before its time is over the job gets SIGTERM; it saves, and is put into the queue
# again to go on from there.

set -euo pipefail

# Prints the TF_CONFIG of the process that Slurm has started.
tf_config() {
  local workers
  # Two jobs on one machine must not take the same port.
  workers=$(scontrol show hostnames "$SLURM_JOB_NODELIST" |
    sed "s/.*/\"&:$((20000 + SLURM_JOB_ID % 10000))\"/" | paste -sd,)
  echo "{\"cluster\": {\"worker\": [$workers]}," \
    "\"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}"
}
export -f tf_config

status=0
# The first process that has saved and ended must not have the others killed.
srun --kill-on-bad-exit=0 \
  bash -c 'TF_CONFIG=$(tf_config) || exit; export TF_CONFIG; exec "$@"' bash "$@" || status=$?
if ((status == 143)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
