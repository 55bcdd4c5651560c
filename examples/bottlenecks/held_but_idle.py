"""Holds a GPU and does nothing with it: a notebook that somebody has left."""

from __future__ import annotations

import time

import torch
from pace import DEVICE, ticks

kept = torch.zeros((1 << 30) if DEVICE.type == "cuda" else (1 << 20), device=DEVICE)
for _ in ticks():
    time.sleep(0.5)
