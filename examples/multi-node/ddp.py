"""One process of a data-parallel training with PyTorch: each has data of its own, and all end with the same model.

`torchrun.sh ddp.py` starts it on every node of a multi-node job; NCCL is used where there are GPUs, else gloo.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


def main() -> None:
    """Learn y = 2x + 1 together, and say what was learned."""
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if has_gpu else torch.device("cpu")
    torch.manual_seed(7)  # The same model everywhere,
    model = DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    numbers = torch.Generator().manual_seed(rank)  # and other data in each process.
    for _ in range(STEPS):
        x = torch.rand((32, 1), generator=numbers).to(device)
        loss = nn.functional.mse_loss(model(x), 2 * x + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = [round(float(each), 4) for each in model.parameters()]
    address = os.environ.get("WINDFALL_NODE_ADDRESS", "this machine")
    print(f"rank {rank} of {dist.get_world_size()} at {address}: learned {weights}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
