"""The instances that exist on simulated markets, what runs on them, and what is due for them.

Decides the order of an instance's life: boots, is ready, may be advised to rebalance, has notice, goes. Pure: time is
an argument, and what follows for agents and core is the engine's to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from windfall.engines.simulated.market import Fate
from windfall.engines.simulated.offering import Offering, Stock
from windfall.jobs.ids import EnvironmentName, InstanceId
from windfall.jobs.resources import Resources


class InstanceStage(Enum):
    """Where an instance is in its life."""

    BOOTING = "booting"
    READY = "ready"
    NOTICED = "noticed"
    #: It is being taken away: what ran there is being killed.
    GOING = "going"


class InstanceEvent(Enum):
    """What has become due for an instance."""

    BOOTED = "booted"
    ADVISED = "advised"
    NOTICED = "noticed"
    GONE = "gone"


@dataclass(slots=True)
class SimulatedInstance:
    """One instance."""

    id: InstanceId
    environment: EnvironmentName
    type: str
    total: Resources
    launched_at: int
    fate: Fate
    stage: InstanceStage = InstanceStage.BOOTING
    #: The attempts that were sent there and have not been heard to end.
    tokens: set[str] = field(default_factory=set)
    #: When it was taken away: what ended there before that has ended by itself.
    gone_at: int = 0

    @property
    def lasts(self) -> bool:
        """Whether nobody is taking it away."""
        return self.stage in (InstanceStage.BOOTING, InstanceStage.READY)


class Fleet:
    """All instances of one engine."""

    def __init__(self) -> None:
        self._instances: dict[InstanceId, SimulatedInstance] = {}
        self._places: dict[str, SimulatedInstance] = {}
        #: Counted when somebody asks, which is at every pass, and again after a change.
        self._stocks: dict[EnvironmentName, Stock] = {}

    def __iter__(self) -> Iterator[SimulatedInstance]:
        return iter(list(self._instances.values()))

    def find(self, instance: InstanceId) -> SimulatedInstance | None:
        """An instance by its id."""
        return self._instances.get(instance)

    def add(self, instance: SimulatedInstance) -> None:
        """Know an instance from now on."""
        self._instances[instance.id] = instance
        self._stocks.clear()

    def remove(self, instance: InstanceId) -> None:
        """Forget an instance and what ran there."""
        gone = self._instances.pop(instance, None)
        self._stocks.clear()
        for token in gone.tokens if gone is not None else ():
            self._places.pop(token, None)

    def place(self, token: str, instance: SimulatedInstance) -> None:
        """Note that an attempt was sent to an instance."""
        instance.tokens.add(token)
        self._places[token] = instance

    def close(self, token: str) -> SimulatedInstance | None:
        """Note that an attempt has ended; the answer is where it was."""
        instance = self._places.pop(token, None)
        if instance is not None:
            instance.tokens.discard(token)
        return instance

    def stock(self, environment: EnvironmentName) -> Stock:
        """How many instances an environment has."""
        if environment not in self._stocks:
            own = [instance for instance in self._instances.values() if instance.environment == environment]
            self._stocks[environment] = Stock(
                Counter(instance.type for instance in own if instance.lasts), len(own)
            )
        return self._stocks[environment]

    def taken_back(self, offering: Offering, now: int) -> list[SimulatedInstance]:
        """The instances of an environment that its trace, if it has one, says are not to be had any more."""
        market, taken = offering.market, []
        if market.trace is None or not market.spot:
            return []
        name = offering.environment.name
        for type_ in self.stock(name).lasting:
            running = [
                (instance.launched_at, instance.id)
                for instance in self._instances.values()
                if instance.environment == name and instance.type == type_ and instance.lasts
            ]
            taken += market.taken_back(running, market.capacity(type_, now) or 0)
        return [self._instances[instance] for instance in taken]

    def advance(self, now: int, *, can_boot: bool) -> Iterable[tuple[InstanceEvent, SimulatedInstance]]:
        """All that has become due, one thing at a time for each instance until nothing is left."""
        for instance in list(self._instances.values()):
            while (happening := _due(instance, now, can_boot=can_boot)) is not None:
                _move(instance, happening, now)
                self._stocks.clear()
                yield happening, instance

    def next_at(self, *, can_boot: bool) -> int | None:
        """When something is due next."""
        times = [
            at
            for instance in self._instances.values()
            if (at := _next(instance, can_boot=can_boot)) is not None
        ]
        return min(times, default=None)


def _next(instance: SimulatedInstance, *, can_boot: bool) -> int | None:
    fate = instance.fate
    if instance.stage is InstanceStage.BOOTING:
        return fate.ready_at if can_boot else None
    if instance.stage is InstanceStage.READY:
        return min(
            (at for at in (fate.rebalance_at, fate.notice_at, _sudden_at(fate)) if at is not None),
            default=None,
        )
    return fate.lost_at if instance.stage is InstanceStage.NOTICED else None


def _sudden_at(fate: Fate) -> int | None:
    return fate.lost_at if fate.notice_at is None else None


def _due(instance: SimulatedInstance, now: int, *, can_boot: bool) -> InstanceEvent | None:
    at = _next(instance, can_boot=can_boot)
    if at is None or at > now:
        return None
    if instance.stage is InstanceStage.BOOTING:
        return InstanceEvent.BOOTED
    if instance.stage is InstanceStage.NOTICED:
        return InstanceEvent.GONE
    fate = instance.fate
    if fate.notice_at is not None and fate.notice_at <= now:
        return InstanceEvent.NOTICED  # a recommendation that is due as well has come too late
    return InstanceEvent.ADVISED if at == fate.rebalance_at else InstanceEvent.GONE


def _move(instance: SimulatedInstance, happening: InstanceEvent, now: int) -> None:
    fate = instance.fate
    if happening is InstanceEvent.BOOTED:
        instance.stage = InstanceStage.READY
    elif happening is InstanceEvent.ADVISED:
        instance.fate = replace(fate, rebalance_at=None)
    elif happening is InstanceEvent.NOTICED:
        # Whole, even if it is given late because the daemon was away: the market would have been in time.
        whole = (fate.lost_at or now) - (fate.notice_at or now)
        instance.stage, instance.fate = InstanceStage.NOTICED, replace(fate, lost_at=now + whole)
    else:
        instance.stage, instance.gone_at = InstanceStage.GOING, now
