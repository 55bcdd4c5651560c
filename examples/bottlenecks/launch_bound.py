"""Bound by the launching of kernels: a deep network of tiny layers, one example at a time."""

from __future__ import annotations

import torch
from pace import DEVICE, synchronize, ticks

layers = [torch.nn.Linear(32, 32, device=DEVICE) for _ in range(200)]
example = torch.randn(1, 32, device=DEVICE)
with torch.no_grad():
    for step in ticks():
        hidden = example
        for layer in layers:
            hidden = torch.relu(layer(hidden))
        if step % 50 == 0:
            synchronize()
