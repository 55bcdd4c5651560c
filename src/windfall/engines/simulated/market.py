"""When a simulated instance is ready, warned and taken away. Pure: the same seed and times give the same market.

Decides fates and availability. All chance is a hash of the seed and of what is decided, so a daemon that starts again
finds every instance's fate as it was. Times are real milliseconds: durations have been divided by the market's speed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from windfall.capacity.environments import RECLAIMABLE, ComputeEnvironment
from windfall.capacity.market_tags import MarketTags
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.engines.simulated.traces import AvailabilityTrace
from windfall.jobs.ids import InstanceId


@dataclass(frozen=True, slots=True)
class Fate:
    """What will become of an instance by itself; None where nothing is planned."""

    ready_at: int
    rebalance_at: int | None = None
    #: None for an instance that goes without notice.
    notice_at: int | None = None
    lost_at: int | None = None


@dataclass(frozen=True, slots=True)
class SpotMarket:
    """One environment's market."""

    tags: MarketTags
    settings: SimulatedSettings
    #: Whether instances can be taken away.
    spot: bool
    trace: AvailabilityTrace | None = None
    #: When the trace began.
    opened_at: int = 0

    @property
    def seed(self) -> int:
        """What chance follows from."""
        return self.settings.seed if self.tags.seed is None else self.tags.seed

    @property
    def boot_ms(self) -> int:
        """From the launch until an instance takes jobs."""
        return self._ms(self.settings.boot_s if self.tags.boot_s is None else self.tags.boot_s)

    @property
    def notice_ms(self) -> int:
        """From the notice until the instance is gone."""
        return self._ms(self.settings.notice_s if self.tags.notice_s is None else self.tags.notice_s)

    def _ms(self, simulated_s: float) -> int:
        return round(simulated_s * 1000 / self.settings.speed)

    def chance(self, *about: object) -> float:
        """A number in (0, 1) that is always the same for the same question."""
        text = "\0".join(map(str, (self.seed, *about)))
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return (number + 0.5) / 2**64

    # Fates ----------------------------------------------------------------------------------------------

    def fate(self, instance: InstanceId, type_: str, number: int, launched_at: int) -> Fate:
        """What becomes of the `number`-th instance (from 1) ever launched in this market."""
        ready_at = launched_at + self.boot_ms
        if not self.spot or self.trace is not None:
            return Fate(ready_at)
        if self.tags.interrupt_at_s is not None:
            if number > len(self.tags.interrupt_at_s):
                return Fate(ready_at)
            end_at = max(ready_at, launched_at + self._ms(self.tags.interrupt_at_s[number - 1]))
        else:
            end_at = ready_at + self._ms(-self.mtbi_s(type_) * math.log(self.chance("life", instance)))
        return self._end(instance, ready_at, end_at)

    def end_now(self, instance: InstanceId, ready_at: int, now: int) -> Fate:
        """The fate of an instance that the market takes back at this moment."""
        return self._end(instance, ready_at, now, rebalances=False)

    def _end(self, instance: InstanceId, ready_at: int, end_at: int, *, rebalances: bool = True) -> Fate:
        sudden = self.settings.sudden if self.tags.sudden is None else self.tags.sudden
        if self.chance("sudden", instance) < sudden:
            return Fate(ready_at, lost_at=end_at)
        rebalance_at = None
        if rebalances and self.chance("rebalance", instance) < self.settings.rebalance:
            lead = self._ms(self.chance("lead", instance) * self.settings.rebalance_lead_s)
            rebalance_at = max(ready_at, end_at - lead)
        return Fate(ready_at, rebalance_at, end_at, end_at + self.notice_ms)

    # Capacity -------------------------------------------------------------------------------------------

    def capacity(self, type_: str, now: int) -> int | None:
        """How many instances of a type can exist at once as the trace has it; None without a trace."""
        return None if self.trace is None else self.trace.count(self._elapsed_s(type_, now))

    def price(self, type_: str, now: int) -> float | None:
        """What the trace says that an hour costs."""
        return None if self.trace is None else self.trace.price(self._elapsed_s(type_, now))

    def safety(self, type_: str, now: int) -> float | None:
        """Seconds that an instance may be expected to stay; None where nothing or a script takes it away."""
        if not self.spot or self.tags.interrupt_at_s is not None:
            return None
        if self.trace is not None:
            return self.trace.calm_s(self._elapsed_s(type_, now))
        return self.mtbi_s(type_)

    def mtbi_s(self, type_: str) -> float:
        """The mean time between interruptions of a type, in simulated seconds."""
        own_s = self.tags.mtbi_of_type(type_)
        return self.settings.mtbi_s if own_s is None else own_s

    def next_step_at(self, type_: str, now: int) -> int | None:
        """When the trace says something new about a type; None without a trace."""
        if self.trace is None:
            return None
        left_s = self.trace.until_next_tick_s(self._elapsed_s(type_, now))
        return now + max(1, math.ceil(left_s * 1000 / self.settings.speed))

    def taken_back(self, running: Sequence[tuple[int, InstanceId]], capacity: int) -> list[InstanceId]:
        """Which of (launched_at, instance) go when this many stay: the newest, or with a seed those that it hits."""
        surplus = len(running) - capacity
        if surplus <= 0:
            return []
        if self.tags.seed is None:
            ordered = sorted(running, reverse=True)
        else:
            ordered = sorted(running, key=lambda entry: self.chance("taken", entry[1]))
        return [instance for _, instance in ordered[:surplus]]

    def _elapsed_s(self, type_: str, now: int) -> float:
        """The trace's own time. With a seed every type begins somewhere else, so that pools differ."""
        elapsed_s = max(0, now - self.opened_at) / 1000 * self.settings.speed
        if self.trace is None or self.tags.seed is None:
            return elapsed_s
        start = int(self.chance("start", type_) * len(self.trace.counts))
        return elapsed_s + start * self.trace.gap_s


def market_of(
    environment: ComputeEnvironment,
    tags: MarketTags,
    settings: SimulatedSettings,
    trace: AvailabilityTrace | None,
) -> SpotMarket:
    """The market of an environment; its trace begins when the environment was declared."""
    spot = environment.provisioning in RECLAIMABLE
    return SpotMarket(tags, settings, spot, trace, environment.created_at)
