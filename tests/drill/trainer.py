"""The training of the drill: a small state that every step changes as a whole, and that depends on all steps before.

    python trainer.py STEPS STEP_S

Prints the step that it begins at, and in the end a hash of its state.
"""

from __future__ import annotations

import hashlib
import sys
from threading import Event

import numpy as np

import windfall.checkpoint


def main() -> None:
    """Train to the end."""
    steps, step_s = int(sys.argv[1]), float(sys.argv[2])
    state, momentum = np.arange(200_000, dtype=np.float64), np.zeros(200_000)
    run = windfall.checkpoint.open(every="0.5s")
    run.track(state=state, momentum=momentum)
    step = run.resume()
    print(f"from {step}", flush=True)
    while step < steps:
        # numpy's own generator is tracked by default: what it draws belongs to the state too.
        momentum *= 0.9
        momentum += np.sin(state) + np.random.standard_normal(len(state))
        state += 0.1 * momentum
        step += 1
        Event().wait(step_s)
        run.step(step)
    run.done()
    print("hash", hashlib.sha256(state.tobytes() + momentum.tobytes()).hexdigest(), flush=True)


if __name__ == "__main__":
    np.random.seed(5)
    main()
