"""Bound by the CPU: one thread turns every record into a tensor in plain Python before the GPU sees it."""

from __future__ import annotations

import random

import torch
from pace import DEVICE, ticks, work

RECORDS = 200_000


def prepare(seed: int) -> torch.Tensor:
    """Parses and normalises records one by one, as many a data set does."""
    random.seed(seed)
    line = ",".join(str(random.random()) for _ in range(RECORDS // 10))
    values = [float(field) * 2.0 - 1.0 for _ in range(10) for field in line.split(",")]
    return torch.tensor(values)


piece = work(0.02)
for step in ticks():
    prepare(step).to(DEVICE)
    piece()
