"""Is still starting: four fifths of its time go into preparing on the CPU, the rest is good work."""

from __future__ import annotations

import time

import torch
from pace import DEVICE, SECONDS, synchronize, ticks

prepared_at = time.monotonic() + SECONDS * 0.8
index = 0
while time.monotonic() < prepared_at:
    index += 1
size = 8192 if DEVICE.type == "cuda" else 256
left = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
for step in ticks():
    left @ left
    if step % 20 == 0:
        synchronize()
    if time.monotonic() > prepared_at + SECONDS * 0.2:
        break
