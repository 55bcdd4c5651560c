"""Hears that the machine will be taken away: the notice file, the rebalance file, SIGTERM.

It only listens: what to do about it is the run's. The signal handler sets a flag and calls the handler that was
there before; it touches nothing else, since it may interrupt anything. A second SIGTERM ends the process at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

#: What a SIGTERM without a notice file is taken to mean: what container engines and AWS Batch give.
SIGTERM_GRACE_S = 30.0
#: The exit code of a run that stopped on notice: that of a program ended by SIGTERM, never that of success.
EXIT_CODE = 128 + signal.SIGTERM

#: Those that have taken SIGTERM over, for children that are forked meanwhile.
_watching: list[NoticeWatch] = []


class NoticeWatch:
    """What is known about the end of this machine."""

    def __init__(self, notice_file: Path | None, rebalance_file: Path | None) -> None:
        self._notice_file = notice_file
        self._rebalance_file = rebalance_file
        #: The handler that was there before ours.
        self.before: Any = None
        self._installed = False
        self._signalled = False
        self._owner = os.getpid()
        #: Called by the handler; must only set flags.
        self.wake: Callable[[], None] = lambda: None
        self.given = False
        self.rebalance = False
        #: Whether the end is known from a notice rather than assumed after a SIGTERM.
        self.certain = False
        self.given_at: float | None = None
        self._ends_at: float | None = None

    def install(self) -> None:
        """Takes SIGTERM over; only the main thread can, and nowhere else is anything changed."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.before = signal.signal(signal.SIGTERM, self._on_sigterm)
        self._installed = True
        _watching.append(self)

    def uninstall(self) -> None:
        """Puts back the handler that was there, unless somebody has replaced ours."""
        if not self._installed or os.getpid() != self._owner:
            return
        if threading.current_thread() is not threading.main_thread():
            return
        self._step_back()
        _watching.remove(self)

    def leave_in_child(self) -> None:
        """Gives a forked child its old handler: a data loader's worker must end by SIGTERM, not save."""
        if self._installed:
            self._step_back()

    def _step_back(self) -> None:
        before = self.before if self.before is not None else signal.SIG_DFL
        # A bound method is a new object at each access: == compares what it is bound to.
        if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, before)
        for other in _watching:
            if other.before == self._on_sigterm:  # a run that was opened later goes on without this one
                other.before = before
        self._installed = False

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if not self._installed:
            self._pass_on(number, frame)
            return
        if self._signalled:
            os._exit(EXIT_CODE)
        self._signalled = True
        self._give(time.time() + SIGTERM_GRACE_S, certain=False)
        if callable(self.before):
            self.before(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        # Somebody who had taken our place still calls us after the run has ended.
        if callable(self.before):
            self.before(number, frame)
        elif self.before is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _give(self, ends_at: float, *, certain: bool) -> None:
        if self.given and (self.certain or not certain):
            return
        self.certain = certain
        self._ends_at = ends_at
        if not self.given:
            self.given_at = time.time()
        self.given = True
        self.wake()

    def look(self) -> None:
        """Looks for the files; cheap, and called a few times a second from the run's own thread."""
        if self._notice_file is not None and not self.certain:
            with contextlib.suppress(OSError):
                self._give(_deadline(self._notice_file.read_text()), certain=True)
        if self._rebalance_file is not None and not self.rebalance and self._rebalance_file.exists():
            self.rebalance = True
            self.wake()

    @property
    def left_s(self) -> float | None:
        """Seconds until the machine is taken away; None when nobody has said that it will be."""
        if not self.given or self._ends_at is None:
            return None
        return max(self._ends_at - time.time(), 0.0)

    @property
    def window_s(self) -> float:
        """Seconds from the notice to the end."""
        if self._ends_at is None or self.given_at is None:
            return 0.0
        return max(self._ends_at - self.given_at, 0.0)


def _deadline(text: str) -> float:
    # A file that says nothing readable is a notice all the same: its writer wants the place.
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return float(json.loads(text)["deadline_at"]) / 1000
    return time.time() + SIGTERM_GRACE_S


def _leave_in_child() -> None:
    for watch in reversed(_watching):
        watch.leave_in_child()
    _watching.clear()


os.register_at_fork(after_in_child=_leave_in_child)
