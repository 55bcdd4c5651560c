"""The process that plays forecasts: it gets values, answers with values, and is ended when it takes too long.

A play takes seconds of processor time, which the loop cannot spare. Each question has a process of its own, one at a
time, at low priority; a few may wait. What goes to it was read from the store: nothing of the living state leaves the
loop but frozen values.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from windfall.control.ports import Loaded
from windfall.forecast.copies import Copied
from windfall.forecast.playing import Bounds
from windfall.forecast.ranges import PLAYS, Ranges, expected_ends
from windfall.jobs.errors import Rejected

#: A play stops here and answers as far as it came; a process that does not answer some seconds later is ended.
PLAY_S, GRACE_S = 20.0, 20.0
#: Questions that may wait for their turn.
WAITING_MAX = 8

#: What a process does with a copy: a function at the top of a module, and values.
Work = Callable[[Copied, Bounds], Any]


class TooBusy(Exception):
    """More forecasts were asked for than can be made."""


class ForecastFailed(Exception):
    """The process ended without an answer, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class _Task:
    work: Work
    records: bytes
    #: Everything of the copy but its records.
    values: dict[str, Any]


class ForecastProcesses:
    """Asks one process after another."""

    def __init__(self, play_s: float = PLAY_S) -> None:
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0
        self._play_s = play_s

    async def ask(self, work: Work, records: Callable[[], Any], values: dict[str, Any]) -> Any:
        """Have some work done on a copy; `records` is awaited for the store's records when it is this one's turn."""
        if self._waiting >= WAITING_MAX:
            raise TooBusy("several forecasts are being made; try again in a minute")
        self._waiting += 1
        try:
            async with self._turn:
                task = _Task(work, await records(), values)
                answer = await asyncio.to_thread(_ask, task, self._play_s)
        finally:
            self._waiting -= 1
        if isinstance(answer, Rejected):
            raise answer
        return answer


def _ask(task: _Task, play_s: float) -> Any:
    """Start a process, wait for its answer, and end it in any case; runs in a thread."""
    spawn = get_context("spawn")
    answer, far_end = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_play, args=(task, play_s, far_end), daemon=True)
    try:
        process.start()
    except OSError as error:
        raise ForecastFailed(f"no process can be started: {error.strerror}") from None
    far_end.close()
    try:
        if not answer.poll(play_s + GRACE_S):
            raise ForecastFailed(f"it took longer than {play_s + GRACE_S:.0f} s")
        return answer.recv()
    except EOFError:
        raise ForecastFailed("its process ended without an answer") from None
    finally:
        answer.close()
        process.kill()
        process.join()


def _play(task: _Task, play_s: float, answer: Connection) -> None:
    """The work of the process."""
    os.nice(10)
    gc.disable()  # It lives for seconds, and makes few cycles.
    until = time.monotonic() + play_s
    records: Callable[[], Loaded] = partial(pickle.loads, task.records)
    copied = Copied(records=records, **task.values)
    try:
        outcome = task.work(copied, Bounds(goes_on=lambda: time.monotonic() < until))
    except Rejected as rejected:
        outcome = rejected
    with contextlib.suppress(BrokenPipeError):
        answer.send(outcome)


def drawn_ends(seed: int, copied: Copied, bounds: Bounds) -> Ranges:
    """Expected ends with numbers drawn from a seed."""
    return expected_ends(random.Random(seed).random, PLAYS, copied, bounds)
