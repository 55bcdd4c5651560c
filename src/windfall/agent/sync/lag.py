"""How far the store is behind the directory, and when that is worth an alarm.

Decides what is normal from what committing has taken so far. Times are monotonic seconds given by the caller. Must not
know what is being moved.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

ALARM_S = 30.0
#: A lag below this is never an alarm, however fast commits usually are.
_NEVER_BELOW_S = 10.0
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 15.0


@dataclass(slots=True)
class Lag:
    """Remembers since when each path differs from what is committed, and how the store has been behaving."""

    uri: str
    _since: dict[str, float] = field(default_factory=dict)
    #: Since when something has differed at every look and nothing was committed: names may come and go meanwhile.
    _behind_since: float | None = None
    _written: int = 0
    _normal_s: float | None = None
    _failure: str | None = None
    _failing_since: float = 0.0
    _is_grave: bool = False
    _wait_s: float = _FIRST_WAIT_S
    _not_before: float = 0.0

    def differ(self, paths: Collection[str], now: float, written: Collection[str] = ()) -> None:
        """Learn which paths are not committed as they are, and which of them are being written."""
        self._since = {path: self._since.get(path, now) for path in paths}
        self._written = sum(path in self._since for path in written)
        if not self._since:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now

    def committed(self, remaining: Collection[str], now: float) -> None:
        """Learn that all but some paths are committed now."""
        taken = [now - since for path, since in self._since.items() if path not in remaining]
        if taken:
            before = self._normal_s
            self._normal_s = max(taken) if before is None else 0.7 * before + 0.3 * max(taken)
        self._since = {path: since for path, since in self._since.items() if path in remaining}
        self._behind_since = now if self._since else None

    def failed(self, text: str, *, grave: bool, now: float) -> bool:
        """Learn that the store cannot be used; grave means that waiting alone will not help. True when that is new."""
        is_new = self._failure is None
        if is_new:
            self._failing_since = now
            self._wait_s = _FIRST_WAIT_S
        self._failure, self._is_grave = text, grave
        self._not_before = now + self._wait_s
        self._wait_s = min(_LONGEST_WAIT_S, self._wait_s * 2)
        return is_new

    def recovered(self) -> bool:
        """Learn that the store answers. True when it did not before."""
        was_failing = self._failure is not None
        self._failure = None
        self._not_before = 0.0
        return was_failing

    def wait_s(self, now: float) -> float:
        """How long to leave a failing store alone."""
        return max(0.0, self._not_before - now)

    @property
    def is_failing(self) -> bool:
        """Whether the last thing that the store did was to fail."""
        return self._failure is not None

    @property
    def pending(self) -> int:
        """How many paths are not committed as they are."""
        return len(self._since)

    def seconds(self, now: float) -> float:
        """Since the oldest change that is not committed."""
        if not self._since:
            return 0.0
        oldest = min(self._since.values())
        return max(0.0, now - (oldest if self._behind_since is None else min(oldest, self._behind_since)))

    def alarm(self, now: float) -> str | None:
        """What is wrong, in a sentence."""
        lag_s = self.seconds(now)
        if self._failure is not None:
            failing_s = now - self._failing_since
            if self._is_grave or failing_s >= ALARM_S or lag_s >= ALARM_S:
                return f"checkpoints cannot be stored for {failing_s:.0f} s now: {self._failure}"
            return None
        # What is still being written is not late yet.
        slow = self._normal_s is not None and lag_s > max(_NEVER_BELOW_S, 2 * self._normal_s)
        slow = slow and self.pending > self._written
        if lag_s < ALARM_S and not slow:
            return None
        usual = "" if self._normal_s is None else f"; {self._normal_s:.0f} s is usual"
        files = "1 file" if self.pending == 1 else f"{self.pending} files"
        written = f" ({self._written} being written)" if self._written else ""
        return f"checkpoints in {self.uri} are {lag_s:.0f} s behind, {files} not yet stored{written}{usual}"
