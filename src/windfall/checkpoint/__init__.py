"""Checkpoints inside a training loop: open, track, resume, step, done.

    import windfall.checkpoint as ckpt

    run = ckpt.open()
    run.track(model=model, opt=optimizer, data=cursor)
    step = run.resume()
    for batch in cursor:
        train(batch)
        step += 1
        run.step(step)
    run.done()

Only the standard library is imported until the job's own framework is there. It works under Windfall and
without it, on a plain directory.
"""

from __future__ import annotations

import os

from windfall.checkpoint.cursor import Cursor
from windfall.checkpoint.errors import (
    CheckpointError,
    Damaged,
    Mismatch,
    NothingUsable,
    NotTrackable,
    SaveFailed,
    WrongUse,
)
from windfall.checkpoint.leaves import Frameworks
from windfall.checkpoint.run import Run
from windfall.checkpoint.settings import read_settings
from windfall.checkpoint.snapshot import Snapshot
from windfall.checkpoint.timing import StepClock

__all__ = [
    "open",
    "Run",
    "Snapshot",
    "Cursor",
    "StepClock",
    "CheckpointError",
    "NotTrackable",
    "WrongUse",
    "Damaged",
    "NothingUsable",
    "Mismatch",
    "SaveFailed",
]


def open(  # noqa: A001 (the word that a reader expects; the module is meant to be used by its name)
    directory: str | os.PathLike[str] | None = None,
    *,
    every: int | str = "auto",
    steps: int | None = None,
    budget: float = 0.01,
    keep: int = 3,
    rng: bool = True,
    exit_on_notice: bool = True,
    lock_wait_s: float = 120.0,
    frameworks: Frameworks | None = None,
) -> Run:
    """Opens a directory for the checkpoints of one training loop, and starts the process that writes them.

    `every`: steps (an int), a duration ("30s", "5m"), or "auto": as often as `budget` allows, by measured cost.
    `steps`: how many there are in all; with them Windfall knows how long the run will take.
    `keep`: how many checkpoints stay. `exit_on_notice=False`: save on notice, but leave the exit to the caller.
    `lock_wait_s`: how long resume() waits for an earlier run that is still writing into the directory.
    """
    settings = read_settings(
        directory,
        every=every,
        steps=steps,
        budget=budget,
        keep=keep,
        rng=rng,
        exit_on_notice=exit_on_notice,
        lock_wait_s=lock_wait_s,
        environment=os.environ,
    )
    if frameworks is None:
        import windfall.checkpoint.frameworks as all_frameworks

        frameworks = all_frameworks
    return Run(settings, frameworks)
