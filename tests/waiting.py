"""The one place in the tests that may sleep: it polls for what must happen and gives up with a message.

Prefer an event (a future, a line of output, a process's exit) where there is one; poll where the thing
watched is in another process and has no way to call back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str, deadline_s: float = 150.0, interval_s: float = 0.02
) -> T:
    """The first true answer of a condition; fails the test with `what` when none came before the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise AssertionError(f"waited {deadline_s:g} s in vain for: {what} (last answer: {answer!r})")
        time.sleep(interval_s)
