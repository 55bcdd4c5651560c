#!/bin/bash
# Prepares an Ubuntu GPU instance (with the NVIDIA driver in its AMI) as a machine for containers with GPUs: Docker and
# NVIDIA's container toolkit from Ubuntu's and NVIDIA's own repositories.
set -u
export DEBIAN_FRONTEND=noninteractive

log() { logger --tag windfall-user-data -- "$*"; }

nvidia-smi --list-gpus >/run/gpus 2>&1 || log "nvidia-smi fails; use an AMI with the driver: $(head -c 300 /run/gpus)"

keyring=/usr/share/keyrings/nvidia-container-toolkit.gpg
curl -fsSL https://nvidia.github.io/libnvidia-container/gpgkey | gpg --dearmor -o "$keyring"
curl -fsSL https://nvidia.github.io/libnvidia-container/stable/deb/nvidia-container-toolkit.list |
  sed "s#deb https://#deb [signed-by=$keyring] https://#g" >/etc/apt/sources.list.d/nvidia-container-toolkit.list

apt-get update -q
apt-get install -qy docker.io nvidia-container-toolkit bubblewrap git || log "packages could not be installed"

mkdir -p /etc/docker
if [ -s /etc/docker/daemon.json ]; then
  log "/etc/docker/daemon.json is there already: NVIDIA's runtime is added to it and made the default, nothing else is changed"
else
  echo '{"default-shm-size": "@SHM@"}' >/etc/docker/daemon.json
fi
nvidia-ctk runtime configure --runtime=docker --set-as-default
nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
systemctl restart --no-block docker
