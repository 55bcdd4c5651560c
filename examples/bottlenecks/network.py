"""Bound by the network: every batch comes over a TCP connection that gives so many MB a second and no more.

Argument 2 is HOST:PORT of a server that sends for ever (`network.py serve RATE_MB_S` is one: it prints its port).
"""

from __future__ import annotations

import socket
import sys
import threading
import time

CHUNK = 1 << 20
BATCH = 64 << 20


def serve(rate_mb_s: float) -> None:
    """Sends zeros to whoever connects, at that rate."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=send, args=(connection, rate_mb_s * 1e6), daemon=True).start()


def send(connection: socket.socket, rate: float) -> None:
    """Sends at that rate until nobody listens."""
    zeros = bytes(CHUNK)
    began, sent = time.monotonic(), 0
    try:
        while True:
            connection.sendall(zeros)
            sent += CHUNK
            time.sleep(max(0.0, sent / rate - (time.monotonic() - began)))
    except OSError:
        return


def train() -> None:
    """Receives a batch, works on it for a moment, and asks for the next."""
    import torch
    from pace import DEVICE, ticks, work

    host, _, port = sys.argv[2].rpartition(":")
    piece = work(0.02)
    buffer = bytearray(BATCH)
    view = memoryview(buffer)
    with socket.create_connection((host, int(port))) as connection:
        for _ in ticks():
            got = 0
            while got < BATCH:
                got += connection.recv_into(view[got:])
            torch.frombuffer(buffer, dtype=torch.uint8).to(DEVICE)
            piece()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(float(sys.argv[2]))
    else:
        train()
