#!/bin/sh
# Runs an MPI program on all nodes of a multi-node job with Open MPI: mpi.sh PROGRAM [ARGUMENT...]
#
# mpirun reaches the other nodes by ssh, so each of them runs an sshd of its own, as the job's user and at the port that
# Windfall gave the node. MPI_KEY has the private key for all of them: make one for this, keep it with
# `windfall secret set mpi-key`, and name it among the secrets of the job definition. The job's user needs a login shell.
set -eu
umask 077
place=$PWD/mpi
mkdir -p "$place"
printf '%s\n' "$MPI_KEY" >"$place/key"
unset MPI_KEY
ssh-keygen -y -f "$place/key" >"$place/key.pub"
port() { echo "$WINDFALL_NODE_PORTS" | cut -d , -f "$(($1 + 1))"; }
address() { echo "$WINDFALL_NODE_ADDRESSES" | cut -d , -f "$(($1 + 1))"; }

if [ "$AWS_BATCH_JOB_NODE_INDEX" != "$AWS_BATCH_JOB_MAIN_NODE_INDEX" ]; then
  exec /usr/sbin/sshd -D -e -f /dev/null -o HostKey="$place/key" -o AuthorizedKeysFile="$place/key.pub" \
    -o ListenAddress="$WINDFALL_NODE_ADDRESS:$WINDFALL_NODE_PORT" -o PidFile=none -o StrictModes=no -o UsePAM=no \
    -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o AllowTcpForwarding=no
fi

hosts=
for node in $(seq 0 $((AWS_BATCH_JOB_NUM_NODES - 1))); do
  hosts=$hosts${hosts:+,}$(address "$node")
  [ "$node" = "$AWS_BATCH_JOB_NODE_INDEX" ] && continue
  printf 'Host %s\n  Port %s\n' "$(address "$node")" "$(port "$node")" >>"$place/config"
  printf '[%s]:%s %s\n' "$(address "$node")" "$(port "$node")" "$(cat "$place/key.pub")" >>"$place/known"
done
cat >>"$place/config" <<END
Host *
  IdentityFile $place/key
  IdentitiesOnly yes
  BatchMode yes
  UserKnownHostsFile $place/known
  GlobalKnownHostsFile /dev/null
END
for node in $(seq 0 $((AWS_BATCH_JOB_NUM_NODES - 1))); do
  [ "$node" = "$AWS_BATCH_JOB_NODE_INDEX" ] && continue
  until ssh -F "$place/config" "$(address "$node")" true; do sleep 1; done # It may not listen yet.
done
mpirun --mca plm_rsh_args "-F $place/config" --mca btl_tcp_if_include "${GLOO_SOCKET_IFNAME:-lo}" \
  --mca oob_tcp_if_include "${GLOO_SOCKET_IFNAME:-lo}" --host "$hosts" "$@"
