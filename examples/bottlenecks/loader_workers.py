"""Bound by the CPU, in another way: loader processes of PyTorch augment records while the training waits for them."""

from __future__ import annotations

import torch
from pace import DEVICE, ticks, work
from torch.utils.data import DataLoader, IterableDataset


class Augmented(IterableDataset):
    """Records without end, each of which costs a few milliseconds of one core."""

    def __iter__(self):
        torch.set_num_threads(1)
        while True:
            image = torch.rand(3, 256, 256)
            for _ in range(4):
                image = torch.nn.functional.avg_pool2d(image.sin(), 3, 1, 1)
            yield image


if __name__ == "__main__":
    batches = iter(DataLoader(Augmented(), batch_size=32, num_workers=4))
    piece = work(0.01)
    for _ in ticks():
        next(batches).to(DEVICE)
        piece()
