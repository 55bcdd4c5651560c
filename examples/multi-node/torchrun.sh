#!/bin/sh
# Starts the processes of one node of a multi-node job with PyTorch's torchrun: torchrun.sh SCRIPT [ARGUMENT...]
#
# Every node meets the main one at its address and port. PYTHON names a Python that has torch, PROCESSES how many
# processes each node starts (one for each GPU, as a rule).
set -eu
main=${AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS:-$WINDFALL_NODE_ADDRESS} # not set on the main node itself
port=$(echo "$WINDFALL_NODE_PORTS" | cut -d , -f "$((AWS_BATCH_JOB_MAIN_NODE_INDEX + 1))")
exec "${PYTHON:-python3}" -m torch.distributed.run \
  --nnodes "$AWS_BATCH_JOB_NUM_NODES" --node-rank "$AWS_BATCH_JOB_NODE_INDEX" \
  --nproc-per-node "${PROCESSES:-1}" --master-addr "$main" --master-port "$port" "$@"
