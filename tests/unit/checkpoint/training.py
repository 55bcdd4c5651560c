"""A tiny training loop over numpy for the tests of whole processes: every bit of its end depends on every step.

python training.py train DIRECTORY STEPS [EVERY]     trains, prints `resumed N`, `step N` and `hash H`
python training.py survive DIRECTORY STEPS KILLS SEED trains in children that it kills, then prints the same
"""

from __future__ import annotations

import hashlib
import os
import random
import select
import signal
import sys
from collections.abc import Callable, Iterator

import numpy as np

import windfall.checkpoint as ckpt

LENGTH = 997


class Learner:
    """Arrays, a data position and two global generators; `mark` equals the step in every element."""

    def __init__(self) -> None:
        random.seed(11)
        np.random.seed(12)
        self.state = {"weights": np.zeros(20_000), "momentum": np.zeros(20_000), "mark": np.zeros(300_000)}
        self.cursor = ckpt.Cursor(LENGTH, batch_size=8, seed=3)

    def steps(self, step: int, last: int) -> Iterator[int]:
        """Does steps until the last one; yields the number of each."""
        while step < last:
            for batch in self.cursor:
                noise = np.random.standard_normal(20_000) + random.random()
                self.state["momentum"] *= 0.9
                self.state["momentum"] += noise * sum(batch)
                self.state["weights"] -= 0.01 * self.state["momentum"]
                self.state["mark"] += 1.0
                step += 1
                yield step
                if step == last:
                    return

    def hash(self) -> str:
        """Of everything that training has changed."""
        digest = hashlib.sha256(repr((random.random(), self.cursor.state_dict())).encode())
        for array in self.state.values():
            digest.update(array.tobytes())
        return digest.hexdigest()


def train(directory: str, last: int, every: int, tell: Callable[[str], None]) -> None:
    """One attempt."""
    learner = Learner()
    run = ckpt.open(directory, every=every)
    run.track(state=learner.state, data=learner.cursor)
    resumed = run.resume()
    if not (learner.state["mark"] == resumed).all():
        tell("torn")
        sys.exit(3)
    tell(f"resumed {resumed}")
    for step in learner.steps(resumed, last):
        run.step(step, loss=float(learner.state["weights"][0]))
        tell(f"step {step}")
    run.done()
    tell(f"hash {learner.hash()}")


def survive(directory: str, last: int, kills: int, seed: int) -> None:
    """Kills attempts with SIGKILL after random times (or lets them end), and lets the last one finish."""
    draw = random.Random(seed)
    for _ in range(kills):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            attempt(directory, last, writer)
        os.close(writer)
        # Every third one may die before it has even resumed; the others get further, however slow the machine is.
        lines = read_for(reader, draw.uniform(0.0, 0.12), after_lines=draw.choice((0, 2, 40)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        print(" ".join(lines[:1]), "killed", flush=True)
    train(directory, last, 3, lambda line: print(line, flush=True) if not line.startswith("step") else None)


def attempt(directory: str, last: int, writer: int) -> None:
    """In a child: never returns."""
    try:
        train(directory, last, 3, lambda line: os.write(writer, f"{line}\n".encode()) and None)
    finally:
        os._exit(0)


def read_for(reader: int, seconds: float, *, after_lines: int) -> list[str]:
    """Reads for a time, which begins after this many lines."""
    text = b""
    while text.count(b"\n") < after_lines and (chunk := os.read(reader, 1 << 16)):
        text += chunk
    timer, ringing = os.pipe()
    signal.signal(signal.SIGALRM, lambda *_: os.write(ringing, b"!") and None)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))
    while True:
        ready, _, _ = select.select([reader, timer], [], [])
        if timer in ready:
            break
        if not (chunk := os.read(reader, 1 << 16)):
            break
        text += chunk
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.close(timer)
    os.close(ringing)
    return text.decode().splitlines()


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    if what == "survive":
        survive(where, *map(int, numbers))
    else:
        train(
            where,
            int(numbers[0]),
            int(numbers[1]) if numbers[1:] else 10,
            lambda line: print(line, flush=True),
        )
