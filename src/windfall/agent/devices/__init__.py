"""The GPUs of this machine: which there are, how they are, and how one is shared.

A source (`sources.py`: NVML, nvidia-smi, a recorded set, simulated ones) says what it reads; `health.py` judges it;
`watcher.py` does both in a thread beside the agent's loop; `mps.py` lets several attempts share a device.
"""
