"""Waits for requests: a server that gets one every half second and answers each in a moment."""

from __future__ import annotations

import time

from pace import ticks, work

piece = work(0.03)
for _ in ticks():
    piece()
    time.sleep(0.5)
