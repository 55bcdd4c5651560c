"""Workers that are containers and do not run yet, each with the child that waits for it.

The child is not started before its container is: so it is STARTING while an image comes, and is refused when there is
no container to be had. Decides when the wait is over; must not know which worker a child gets otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from windfall.agent.attempt import Attempt
from windfall.agent.errors import AgentError, CannotStart
from windfall.agent.messages import Message, Progressed
from windfall.agent.workers.boxes import WorkerBoxes
from windfall.agent.workers.process import WorkerProcess


class NoWorker(CannotStart):
    """The worker of a child cannot be started; the text says why."""


class ComingWorkers:
    """The workers that are waited for."""

    def __init__(self, boxes: WorkerBoxes, tell: Callable[[Message], None]) -> None:
        self._boxes = boxes
        self._tell = tell
        #: By the token of the child; or why there is none.
        self._workers: dict[str, WorkerProcess | Exception] = {}

    def __bool__(self) -> bool:
        return bool(self._workers)

    def __contains__(self, token: str) -> bool:
        return token in self._workers

    def expect(self, token: str, start: Callable[[], WorkerProcess]) -> None:
        """Start a worker for a child; what goes wrong is raised when it is taken."""
        try:
            worker = start()
        except (AgentError, OSError) as error:
            self._workers[token] = error
        else:
            worker.token = token
            self._workers[token] = worker

    def has_come(self, attempt: Attempt) -> bool:
        """Tell whether the wait of a child is over, in whichever way; what it waits for is told meanwhile."""
        worker = self._workers[attempt.token]
        if isinstance(worker, Exception):
            return True
        before, state = worker.container, self._boxes.state(worker.name)
        worker.container, now = state, time.time_ns() // 1_000_000
        if state.started_at is None and state.ended_at is None and worker.alive:
            attempt.container = state
            if state.doing is not None and state.doing != before.doing:
                self._tell(Progressed(attempt.token, now, doing=state.doing))
            return False
        attempt.container = None
        if before.doing is not None:
            self._tell(Progressed(attempt.token, now))
        return True

    def take(self, token: str) -> WorkerProcess | None:
        """Return the worker that a child waited for, None if it did not; raises why there is none."""
        worker = self._workers.pop(token, None)
        if isinstance(worker, Exception):
            raise worker
        if worker is None:
            return None
        worker.token = None
        if worker.container.started_at is None or not worker.alive:
            worker.end()
            raise NoWorker(worker.container.failure or "what keeps the worker's container has ended")
        return worker

    def drop(self, token: str) -> None:
        """Nobody waits for it any more: it ends."""
        worker = self._workers.pop(token, None)
        if isinstance(worker, WorkerProcess):
            worker.token = None
            worker.end()
