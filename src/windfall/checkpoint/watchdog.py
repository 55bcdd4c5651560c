"""The run's own thread: it checks for notices and the clock a few times a second, so that a step need not.

It raises flags that the training thread sees at its next step boundary, writes the progress file, and, when
the machine is about to go and no boundary has come, ends the process while there is time to keep what is saved.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from windfall.checkpoint.notice import EXIT_CODE, NoticeWatch

POLL_S = 0.2
PROGRESS_S = 1.0
#: With this much of the notice left, a step that has not ended is given up.
LAST_CALL_S = 15.0
LAST_CALL_SHARE = 1 / 8


def last_call_s(window_s: float) -> float:
    """Seconds before the end at which waiting for a step boundary stops."""
    return min(LAST_CALL_S, window_s * LAST_CALL_SHARE)


class Watchdog:
    """Calls back from a daemon thread until stopped."""

    def __init__(
        self,
        watch: NoticeWatch,
        poll: Callable[[float], None],
        report: Callable[[], None],
        give_up: Callable[[float], None],
    ) -> None:
        """`poll(now)` at every turn, `report()` about once a second, `give_up(seconds left)` at the last call."""
        self._watch = watch
        self._poll = poll
        self._report = report
        self._give_up = give_up
        self._stopped = threading.Event()
        #: Set by the run once it saves on notice: from then on there is nothing to give up.
        self.at_boundary = False
        self._thread = threading.Thread(target=self._turn, name="windfall-checkpoint-watchdog", daemon=True)

    def start(self) -> None:
        """Starts polling."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the turn in hand."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _turn(self) -> None:
        reported_at = 0.0
        while not self._stopped.wait(POLL_S):
            self._watch.look()
            now = time.monotonic()
            self._poll(now)
            if now - reported_at >= PROGRESS_S:
                reported_at = now
                self._report()
            left_s = self._watch.left_s
            if left_s is None or not self._watch.certain or self.at_boundary:
                continue
            if left_s <= last_call_s(self._watch.window_s):
                self._give_up(left_s)
                os._exit(EXIT_CODE)
