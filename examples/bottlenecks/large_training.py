"""Uses its GPU well, in another way: the training of wide layers in bf16 with a large batch."""

from __future__ import annotations

import torch
from pace import DEVICE, ticks

width = 8192 if DEVICE.type == "cuda" else 128
model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(6)]).to(
    DEVICE, torch.bfloat16
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
batch = torch.randn(width, width, device=DEVICE, dtype=torch.bfloat16)
for _ in ticks():
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
