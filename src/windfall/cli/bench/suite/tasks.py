"""A small task, as a batch of small jobs would have it: one product of 512 x 512 on the device, its checksum printed.

The same task runs once, many times in one process, or on request of a warm worker. Decides what the task is; must not
know who asks for it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from windfall.cli.bench.suite.libraries import LIBRARIES, Library

EDGE = 512
INDEX = "AWS_BATCH_JOB_ARRAY_INDEX"
#: The descriptor on which a warm worker says that a child is done.
ANSWERS = 3
NOTHING_ASKED = 4


def run_tasks(name: str, device: str, first: int, count: int) -> int:
    """Do `count` tasks in this process, the child of an array that of its index."""
    library = LIBRARIES[name](device)
    if not library.present():
        return 3
    first = int(os.environ.get(INDEX, str(first)))
    for index in range(first, first + count):
        sys.stdout.write(f"task {index}: {checksum(library, index):.3f}\n")
    return 0


def checksum(library: Library, index: int) -> float:
    """Bring two matrices drawn from the index, multiply them, and bring the product back."""
    draw = library.np.random.default_rng(index)
    left, right = (draw.random((EDGE, EDGE), dtype=library.np.float32) for _ in range(2))
    product: Any = library.get(library.multiply(library.put(left), library.put(right)))
    return float(product.sum(dtype=library.np.float64))


def run_lines(name: str, device: str) -> int:
    """Do a task for each line on stdin and answer each on ANSWERS, as a warm worker does, until all are done."""
    library = LIBRARIES[name](device)
    code = NOTHING_ASKED
    for line in sys.stdin:
        code = 0
        index = int(json.loads(line)["index"])
        sys.stdout.write(f"task {index}: {checksum(library, index):.3f}\n")
        # The answer comes last: what is printed before it belongs to this child's log.
        sys.stdout.flush()
        os.write(ANSWERS, b'{"exit_code": 0}\n')
    return code
