"""Bound by synchronisation: after every small piece of GPU work the host asks for a number and waits for it."""

from __future__ import annotations

import torch
from pace import DEVICE, ticks

left = torch.randn(768, 768, device=DEVICE)
total = 0.0
for _ in ticks():
    for _ in range(100):
        total += (left @ left).sum().item()
