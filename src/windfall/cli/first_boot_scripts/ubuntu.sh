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

nvidia-ctk runtime configure --runtime=docker
nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
mount -o remount,size=@SHM_OF_HOST@ /dev/shm
systemctl restart --no-block docker
