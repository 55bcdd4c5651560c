"""How long to wait before something that failed is tried again, and how often the same failure is logged.

Decides pauses. Pure: the clock and the random numbers are arguments. Must not know what is tried, nor how to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: More doublings than any longest pause has; it bounds the power that is computed.
_STEPS_MOST = 64


@dataclass(frozen=True, slots=True)
class Pauses:
    """Pauses that grow from `first` to `most`, each `factor` times the one before, in whatever unit the caller has."""

    first: float
    most: float
    factor: float = 2
    #: The part of a pause that chance may take away, so that many that failed together do not retry together.
    jitter: float = 0

    def after(self, failures: int, chance: float = 0) -> float:
        """The pause after this many failures in a row, at least one; `chance` is between 0 and 1."""
        pause = min(self.most, self.first * self.factor ** min(failures - 1, _STEPS_MOST))
        return pause * (1 - self.jitter * chance)


class Backoff:
    """The tries of one thing: count a failure and wait, or count a success."""

    def __init__(
        self,
        pauses: Pauses,
        *,
        patience_s: float | None = None,
        clock: Callable[[], float] | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        """`patience_s` bounds, by the clock, how long tries may fail in a row; `random` is needed for jitter alone."""
        assert patience_s is None or clock is not None, "patience needs a clock"
        self._pauses = pauses
        self._patience_s = patience_s
        self._clock = clock
        self._random = random
        self._failures = 0
        self._failing_since: float | None = None

    def failed(self) -> float:
        """Count a failure; returns how long to wait before the next try."""
        self._failures += 1
        if self._failing_since is None and self._clock is not None:
            self._failing_since = self._clock()
        return self._pauses.after(self._failures, 0 if self._random is None else self._random())

    def gives_up(self) -> bool:
        """Whether the next pause would outlast the patience; asked after a failure, instead of `failed`."""
        if self._patience_s is None or self._clock is None:
            return False
        now = self._clock()
        since = now if self._failing_since is None else self._failing_since
        return now + self._pauses.after(self._failures + 1) - since > self._patience_s

    def succeeded(self) -> None:
        """Count a success: the next pause is the first one again."""
        self._failures, self._failing_since = 0, None


class FailureLog:
    """Logs a failure that lasts once, and again when it changes or after `again_s`."""

    def __init__(self, clock: Callable[[], float], again_s: float = float("inf")) -> None:
        self._clock = clock
        self._again_s = again_s
        self._text: str | None = None
        self._at = 0.0

    def is_news(self, text: str) -> bool:
        """Whether to log this failure now."""
        now = self._clock()
        if text == self._text and now - self._at < self._again_s:
            return False
        self._text, self._at = text, now
        return True

    def is_over(self) -> bool:
        """Whether to log that it works again; asked after a success."""
        was_logged, self._text = self._text is not None, None
        return was_logged
