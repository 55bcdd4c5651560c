"""Attempts that wait to be started, and the threads that start them.

Decides how many starts are under way at once and which thread takes which. Must not know what is started, nor what
becomes of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from windfall.agent.attempt import Attempt
from windfall.agent.credentials import JobUser
from windfall.agent.errors import AgentError
from windfall.agent.journal import Journal
from windfall.agent.spawner import Launch, Launched, Spawner, refusal

#: So many starts wait in the spawners at once: enough to keep them busy. Each holds two open files, and every new
#: process begins with a copy of them all and closes them one by one.
_MOST_IN_FLIGHT = 24
#: A start keeps its thread waiting until the new program is loaded, so a second one keeps a second core busy.
_SPAWNERS = 2


class Starts:
    """The queue before the spawners."""

    def __init__(
        self,
        user: JobUser,
        journal: Journal,
        notify: Callable[[], None],
        may_start: Callable[[Attempt], bool],
        launch: Callable[[Attempt], Launch],
        refuse: Callable[[Attempt, str, int], None],
    ) -> None:
        self._journal = journal
        self._may_start = may_start
        self._launch = launch
        self._refuse = refuse
        self.waiting: deque[Attempt] = deque()
        #: Starts that a spawner has and has not answered.
        self.in_flight = 0
        self._spawners = [
            Spawner(user, journal.write_now, notify, f"spawner-{number}") for number in range(_SPAWNERS)
        ]
        self._privileged = self._spawners[0]
        if user.drop:
            self._privileged = Spawner(None, journal.write_now, notify, "sandbox-spawner")
            self._spawners.append(self._privileged)

    def pump(self) -> None:
        """Hand waiting attempts to the spawners, once their intents are in the journal."""
        if self._journal.wants_compaction and self.in_flight:
            return  # The journal is rewritten when no thread writes to it; the rest follows in a moment.
        if not self.waiting or self.in_flight >= _MOST_IN_FLIGHT:
            return
        self._journal.flush()
        plain: list[Launch] = []
        privileged: list[Launch] = []
        held: list[Attempt] = []
        while self.waiting and self.in_flight < _MOST_IN_FLIGHT:
            attempt = self.waiting.popleft()
            if not self._may_start(attempt):
                held.append(attempt)
                continue
            try:
                launch = self._launch(attempt)
            except (AgentError, OSError, ValueError) as error:
                self._refuse(attempt, refusal(str(error)), time.time_ns() // 1_000_000)
                continue
            (privileged if attempt.intended.sandboxed else plain).append(launch)
            self.in_flight += 1
        self.waiting.extend(held)
        for number in range(_SPAWNERS):
            if share := plain[number::_SPAWNERS]:
                self._spawners[number].submit(share)
        if privileged:
            self._privileged.submit(privileged)

    def results(self) -> list[Launched]:
        """Take what has become of the starts so far."""
        found = [launched for spawner in self._spawners for launched in spawner.results()]
        self.in_flight -= len(found)
        return found
