"""How long each of these programs goes on, and what it runs on: argument 1 is the number of seconds (20)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def ticks() -> Iterator[int]:
    """Counts until the time is over; the clock starts when the GPU is ready."""
    torch.zeros(1, device=DEVICE)
    synchronize()
    end = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1
    print(f"{number} steps on {DEVICE}")


def synchronize() -> None:
    """Waits for the GPU, where there is one."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def work(seconds: float) -> Callable[[], Any]:
    """A piece of GPU work that takes about so long, by what a product of two matrices takes here."""
    size = 4096 if DEVICE.type == "cuda" else 256
    left = torch.randn(size, size, device=DEVICE)
    left @ left
    synchronize()
    began = time.perf_counter()
    for _ in range(10):
        left @ left
    synchronize()
    times = max(1, round(seconds / ((time.perf_counter() - began) / 10)))

    def piece() -> None:
        for _ in range(times):
            left @ left
        synchronize()

    return piece
