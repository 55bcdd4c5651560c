"""The tiny tasks of bench/warm_workers.py, run by jobs: import what they need, do little, note how long that took.

python -m bench.warm_job FUNCTION       the cold way: a process of its own for each child
"""

from __future__ import annotations

import os
import sys
import time

_state: dict[str, object] = {}


def numpy_product(index: int) -> None:
    """A 256 x 256 product with numpy."""
    begin = time.monotonic()
    import numpy as np

    values = np.random.default_rng(index).random((256, 256))
    _note(begin, float((values @ values).sum()))


def torch_product(index: int) -> None:
    """A 512 x 512 product with PyTorch on the GPU: brought there, multiplied, brought back."""
    begin = time.monotonic()
    import torch

    generator = torch.Generator().manual_seed(index)
    values = torch.rand((512, 512), generator=generator).to(os.environ["BENCH_DEVICE"])
    _note(begin, float((values @ values).sum()))


def _note(begin: float, answer: float) -> None:
    """One line per child: whether it was the first of its process, and the seconds of the task with what it imports."""
    first = not _state
    _state["seen"] = True
    line = f"{int(first)} {time.monotonic() - begin:.6f} {answer:.6g}\n"
    fd = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(fd, line.encode())
    os.close(fd)
    print(line, end="")


if __name__ == "__main__":
    globals()[sys.argv[1]](int(os.environ["AWS_BATCH_JOB_ARRAY_INDEX"]))
