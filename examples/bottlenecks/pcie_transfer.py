"""Bound by the way between host and GPU: a gigabyte of pageable memory goes there and back for a moment's work."""

from __future__ import annotations

import torch
from pace import DEVICE, ticks

host = torch.ones(256 << 20, dtype=torch.float32)
for _ in ticks():
    there = host.to(DEVICE)
    there.add_(1.0)
    host.copy_(there)
