"""Bound by the GPU's own memory: one addition for every eight bytes that are read and written."""

from __future__ import annotations

import torch
from pace import DEVICE, synchronize, ticks

large = torch.ones((1 << 30) if DEVICE.type == "cuda" else (1 << 20), dtype=torch.float32, device=DEVICE)
for _ in ticks():
    for _ in range(20):
        large.add_(1.0)
    synchronize()
