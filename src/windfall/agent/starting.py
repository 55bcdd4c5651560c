"""Attempts that wait to be started, and the threads that start them.

Decides how many starts are under way at once, and which are tried again: what the machine has run out of for a moment
(processes, memory, open files, room on the disk) is not the attempt's fault. Must not know what is started, nor what
becomes of it.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable

from windfall.agent.attempt import Attempt
from windfall.agent.errors import AgentError, refusal
from windfall.agent.events import AgentEvent, Delayed, TakenByLauncher
from windfall.agent.journal import Journal
from windfall.agent.messages import Message, Progressed
from windfall.agent.spawner import Launch, Launched, Spawner
from windfall.agent.speech import say

#: How many starts wait in the spawners at once: enough to keep them busy. Each holds two open files, and every new
#: process begins with a copy of them all and closes them one by one.
_MOST_IN_FLIGHT = 24
#: A start keeps its thread waiting until the new program is loaded, so a second one keeps a second core busy.
_SPAWNERS = 2
#: What a machine may have again in a moment.
PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT})
#: How long it is waited for in all, and between two tries.
_PATIENCE_S = 600.0
_AGAIN_S = 1.0


class Starts:
    """The queue before the spawners."""

    def __init__(
        self,
        journal: Journal,
        notify: Callable[[], None],
        may_start: Callable[[Attempt], bool],
        react: Callable[[AgentEvent], None],
        tell: Callable[[Message], None],
        *,
        patience_s: float = _PATIENCE_S,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._patience_s, self._again_s = patience_s, again_s
        self._tell = tell
        #: Attempts that a passing fault has kept from being started: until when they are tried again, and when next.
        self._tried: dict[str, tuple[float, float]] = {}
        self._journal = journal
        self._may_start = may_start
        self._react = react
        self.waiting: deque[Attempt] = deque()
        #: Starts that a spawner has and has not answered.
        self.in_flight = 0
        self._spawners = [
            Spawner(journal.write_now, notify, f"spawner-{number}") for number in range(_SPAWNERS)
        ]

    def pump(self) -> None:
        """Hand waiting attempts to the spawners, once their intents are in the journal."""
        if self._journal.wants_compaction and self.in_flight:
            return  # The journal is rewritten when no thread writes to it; the rest follows in a moment.
        if not self.waiting or self.in_flight >= _MOST_IN_FLIGHT:
            return
        self._journal.flush()
        launches: list[Launch] = []
        held: list[Attempt] = []
        while self.waiting and self.in_flight < _MOST_IN_FLIGHT:
            attempt = self.waiting.popleft()
            if self._due(attempt) > time.monotonic() or not self._may_start(attempt):
                held.append(attempt)
                continue
            try:
                launch = attempt.launcher.launch(attempt)
            except (AgentError, OSError, ValueError) as error:
                reason = refusal(str(error))
                if not self.once_more(attempt, reason, getattr(error, "errno", 0)):
                    attempt.launcher.not_launched(attempt, reason, _now_ms())
                continue
            self._react(TakenByLauncher(attempt.token))
            launches.append(launch)
            self.in_flight += 1
        self.waiting.extend(held)
        for number, spawner in enumerate(self._spawners):
            if share := launches[number::_SPAWNERS]:
                spawner.submit(share)

    def results(self) -> list[Launched]:
        """Take what has become of the starts so far."""
        found = [launched for spawner in self._spawners for launched in spawner.results()]
        self.in_flight -= len(found)
        for launched in found:
            if launched.spawned is not None and self._tried.pop(launched.token, None) is not None:
                self._tell(Progressed(launched.token, launched.at))
        return found

    def once_more(self, attempt: Attempt, reason: str, number: int | None) -> bool:
        """Keep an attempt that could not be started for another try; False when that is not worth it (any more)."""
        now = time.monotonic()
        until, _ = self._tried.get(attempt.token, (now + self._patience_s, now))
        if number not in PASSING or now >= until or attempt.story.asked_to_end:
            self._tried.pop(attempt.token, None)
            return False
        if attempt.token not in self._tried:
            if not self._tried:
                say(f"{attempt.token}: {reason}; it is tried again for {self._patience_s / 60:.0f} minutes")
            if attempt.story.accepted is None:  # A staged one is reported by its courier.
                self._tell(Progressed(attempt.token, _now_ms(), doing=f"waiting to be started: {reason}"))
        self._tried[attempt.token] = until, now + self._again_s
        self._react(Delayed(attempt.token))
        self.waiting.append(attempt)
        return True

    def drop(self, attempt: Attempt) -> None:
        """Start it no more."""
        self._tried.pop(attempt.token, None)
        if attempt in self.waiting:
            self.waiting.remove(attempt)

    @property
    def next_due(self) -> float | None:
        """When an attempt is to be tried again, on the monotonic clock."""
        if not self._tried:
            return None
        return min((self._due(one) for one in self.waiting if one.token in self._tried), default=None)

    @property
    def settled(self) -> bool:
        """Whether no start is under way in a spawner."""
        return self.in_flight == 0

    def _due(self, attempt: Attempt) -> float:
        tried = self._tried.get(attempt.token) if self._tried else None
        return 0.0 if tried is None else tried[1]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
