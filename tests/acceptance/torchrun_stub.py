"""Stands for torch.distributed.run where PyTorch is missing: starts the processes of one host as torchrun does."""

import os
import subprocess
import sys

options = {}
words = sys.argv[1:]
while words[0].startswith("--"):
    name, _, value = words.pop(0)[2:].partition("=")
    options[name] = value
each = int(options["nproc-per-node"])
hosts, rank = int(os.environ.get("PET_NNODES", "1")), int(os.environ.get("PET_NODE_RANK", "0"))
started = [
    subprocess.Popen(
        [sys.executable, *words],
        env={
            **os.environ,
            "RANK": str(rank * each + number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(hosts * each),
        },
    )
    for number in range(each)
]
sys.exit(max(process.wait() for process in started))
