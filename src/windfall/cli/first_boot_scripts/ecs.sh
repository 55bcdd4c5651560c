#!/bin/bash
# Prepares an ECS GPU instance for AWS Batch. The AMI brings the NVIDIA driver and Docker; this only tells the ECS agent
# of the GPUs and sets Docker's defaults.
#
# Two things that must not be done here:
# - starting or restarting the ECS agent: its unit waits for cloud-init, and cloud-init waits for this script to end, so
#   both would wait for ever. It is started after this script, by itself.
# - waiting for Docker: --no-block asks for the restart and goes on.
set -u

log() { logger --tag windfall-user-data -- "$*"; }

if nvidia-smi --list-gpus >/run/gpus 2>&1; then
  log "GPUs: $(tr '\n' ' ' </run/gpus)"
else
  log "nvidia-smi fails; is this a GPU AMI? $(head -c 300 /run/gpus)"
fi

cat >>/etc/ecs/ecs.config <<'CONFIG'
ECS_ENABLE_GPU_SUPPORT=true
ECS_ENABLE_SPOT_INSTANCE_DRAINING=true
ECS_INSTANCE_ATTRIBUTES={"GPU": "true"}
CONFIG

mkdir -p /etc/docker
cat >/run/windfall-daemon.json <<'CONFIG'
{
  "default-runtime": "nvidia",
  "default-shm-size": "@SHM@",
  "runtimes": {
    "nvidia": {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": []}
  }
}
CONFIG
if [ ! -s /etc/docker/daemon.json ]; then
  cp /run/windfall-daemon.json /etc/docker/daemon.json
  systemctl restart --no-block docker
elif python3 - /etc/docker/daemon.json /run/windfall-daemon.json <<'MERGE'; then
import json, os, sys

path = sys.argv[1]
there, wanted = (json.load(open(name)) for name in sys.argv[1:])
runtimes = {**wanted["runtimes"], **there.get("runtimes", {})}
with open(path + ".new", "w") as file:
    json.dump({**wanted, **there, "runtimes": runtimes}, file, indent=2)
os.replace(path + ".new", path)
MERGE
  log "/etc/docker/daemon.json was there already: what it did not say was added"
  systemctl restart --no-block docker
else
  log "/etc/docker/daemon.json is there already, cannot be read and was left alone"
fi
