"""What windfall.checkpoint costs a training loop at every step at which it does not save."""

from __future__ import annotations

import time

from bench.results import Bench, Result, middle


def measure(bench: Bench) -> list[Result]:
    """`run.step(n)` beside an empty function of the same form, called as often."""
    import numpy as np

    import windfall.checkpoint

    count, repeats = bench.count(200_000, 50_000), 5
    run = windfall.checkpoint.open(bench.workspace / "step-cost", every=10**9)
    run.track(state=np.zeros(1000))
    step = run.resume()

    def nothing(_step: int) -> None:
        return None

    costs, empties = [], []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(count):
            step += 1
            run.step(step)
        costs.append((time.perf_counter() - begin) / count * 1e6)
        begin = time.perf_counter()
        for number in range(count):
            nothing(number)
        empties.append((time.perf_counter() - begin) / count * 1e6)
    run.done(save=False)
    value, empty = middle(costs), middle(empties)
    bench.say(f"run.step: {value:.2f} us, an empty call {empty:.2f} us")
    return [
        Result(
            "windfall.checkpoint: one step without a save",
            value,
            "us",
            empty,
            "an empty call, us",
            value / empty,
            details={"runs": [round(it, 3) for it in costs]},
        )
    ]
