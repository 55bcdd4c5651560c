"""Bound by launches, in another way: the training of a small model with a small batch, forward, backward and Adam."""

from __future__ import annotations

import torch
from pace import DEVICE, ticks

model = torch.nn.Sequential(
    *[
        layer
        for _ in range(12)
        for layer in (torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU())
    ]
).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
batch = torch.randn(8, 64, device=DEVICE)
for _ in ticks():
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
