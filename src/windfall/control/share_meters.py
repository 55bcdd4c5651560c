"""What each share of each fair-share queue holds, held on average, and whether it is active: one meter a share.

Averages are brought up to date when something changes or somebody looks. Must not know policies beyond their window,
nor who goes first: scheduling/fair_share.py decides that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from windfall.capacity.policies import ShareUse
from windfall.jobs.ids import QueueName
from windfall.scheduling.fair_share import LEAST_WINDOW_S, NONE, Amount, averaged


@dataclass(slots=True)
class ShareMeter:
    """One share's meter."""

    queue: QueueName
    share: str
    #: Over how long use counts.
    window_s: int = LEAST_WINDOW_S
    average: Amount = NONE
    #: When the average was last brought up to date; what is held has been held since.
    at: int = 0
    held: Amount = NONE
    #: How many of its jobs are not finished, arrays counted as one, and when it last had one.
    jobs: int = 0
    active_at: int = 0
    #: When it was last written, and whether it has changed since.
    written_at: int = 0
    changed: bool = False

    def average_at(self, now: int) -> Amount:
        """What it held on average, at this time."""
        return averaged(self.average, self.held, now - self.at, self.window_s)

    def hold(self, more: Amount, now: int) -> None:
        """It holds more from now on."""
        self._settle(now)
        self.held = self.held + more

    def give_back(self, less: Amount, now: int) -> None:
        """It holds less from now on."""
        self._settle(now)
        self.held = self.held - less

    def reckon_over(self, window_s: int, now: int) -> None:
        """Use counts over another window from now on."""
        if window_s != self.window_s:
            self._settle(now)
            self.window_s = window_s

    def _settle(self, now: int) -> None:
        self.average, self.at, self.changed = self.average_at(now), max(now, self.at), True

    def is_active(self, now: int) -> bool:
        """Whether it has a job, or had one within the window."""
        return self.jobs > 0 or now < self.active_at + self.window_s * 1000

    def record(self, now: int) -> ShareUse:
        """What is kept over restarts."""
        average = self.average_at(now)
        active_at = now if self.jobs else self.active_at
        return ShareUse(self.queue, self.share, average.vcpus, average.gpus, now, active_at)


@dataclass(slots=True)
class ShareMeters:
    """All meters, by queue and share."""

    queues: dict[QueueName, dict[str, ShareMeter]] = field(default_factory=dict)

    def of(self, queue: QueueName) -> dict[str, ShareMeter]:
        """The meters of a queue's shares."""
        return self.queues.get(queue, {})

    def find(self, queue: QueueName, share: str | None) -> ShareMeter | None:
        """The meter of a share, if it has one."""
        return None if share is None else self.of(queue).get(share)

    def made(self, queue: QueueName, share: str, window_s: int, now: int) -> ShareMeter:
        """The meter of a share, new if it has none."""
        meters = self.queues.setdefault(queue, {})
        meter = meters.get(share)
        if meter is None:
            meter = meters[share] = ShareMeter(queue, share, window_s, at=now)
        return meter

    def active(self, queue: QueueName, now: int) -> dict[str, ShareMeter]:
        """Those of a queue's active shares."""
        return {share: meter for share, meter in self.of(queue).items() if meter.is_active(now)}

    def __iter__(self) -> Iterator[ShareMeter]:
        return (meter for meters in self.queues.values() for meter in meters.values())

    def remove(self, meter: ShareMeter) -> None:
        """Forget a share."""
        meters = self.queues[meter.queue]
        del meters[meter.share]
        if not meters:
            del self.queues[meter.queue]
