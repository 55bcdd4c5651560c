"""Uses its GPU well: one large product of half-precision matrices after the other."""

from __future__ import annotations

import torch
from pace import DEVICE, synchronize, ticks

size = 8192 if DEVICE.type == "cuda" else 256
left = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
for step in ticks():
    left @ left
    if step % 20 == 0:
        synchronize()
