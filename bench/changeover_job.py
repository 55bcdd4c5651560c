"""The job of the changeover measurement: a state of a given size in numpy, short steps, windfall.checkpoint.

python bench/changeover_job.py BYTES
"""

from __future__ import annotations

import sys
import time

import numpy as np

import windfall.checkpoint


def main() -> None:
    """Change the whole state at every step, until told to leave."""
    # No two pieces alike: equal ones would be stored once.
    state = np.arange(int(sys.argv[1]) // 8, dtype=np.float64)
    run = windfall.checkpoint.open(every="3600s")
    run.track(state=state)
    step = run.resume()
    assert state[0] == step, "the restored state belongs to another step"
    while True:
        state += 1.0
        step += 1
        run.step(step)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
