"""Ends that may be a GPU's doing, kept back for a moment so that the news of the GPU is told first.

A device that breaks kills the program on it at once, and the driver reports it a moment later. In that order, the
core would see a program that failed; the other way round it sees an attempt whose device fell ill, and moves its job.
Decides which ends wait and for how long; must not know what becomes of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from windfall.agent.attempt import Attempt
from windfall.agent.messages import Exited, Message


class SuspectEnds:
    """The ends that wait for `moment_s`; 0 where no news can come."""

    def __init__(
        self,
        attempts: Mapping[str, Attempt],
        moment_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempts = attempts
        self._moment_s = moment_s
        self._clock = clock
        self._kept: deque[tuple[float, Message]] = deque()

    def sift(self, outbox: Sequence[Message], *, all_now: bool = False) -> list[Message]:
        """What may be reported now: everything but suspect ends, and those that have waited long enough."""
        now = self._clock()
        told = []
        for message in outbox:
            if self._moment_s and not all_now and self._is_suspect(message):
                self._kept.append((now + self._moment_s, message))
            else:
                told.append(message)
        while self._kept and (all_now or self._kept[0][0] <= now):
            told.append(self._kept.popleft()[1])
        return told

    @property
    def next_due(self) -> float | None:
        """When the first of them has waited long enough, on the monotonic clock."""
        return self._kept[0][0] if self._kept else None

    def _is_suspect(self, message: Message) -> bool:
        """Whether it is the end of a program with GPUs that failed although nobody asked it to stop."""
        if not isinstance(message, Exited) or message.exit_code == 0:
            return False
        attempt = self._attempts.get(message.token)
        return attempt is not None and bool(attempt.intended.gpu_ids) and attempt.grace_s is None
