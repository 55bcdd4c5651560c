"""Fair share: how a share's use is scored, which share goes next, and what is reserved for shares to come.

A share's use is what it held on average over the policy's window, plus what it holds now. Its score is the
larger of its fractions of the queue's vCPUs and GPUs, times its weight. The lowest score goes first. Must not
know places, nor how the averages are kept (control/share_use.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, floor
from typing import TYPE_CHECKING

from windfall.capacity.policies import FairShare
from windfall.jobs.resources import Resources

if TYPE_CHECKING:  # its view of a queue is defined here
    from windfall.scheduling.snapshot import SchedulingClass, Shape

#: The shortest window, and the default, as on AWS.
LEAST_WINDOW_S = 600
#: How many shares of a queue may be active at once, as on AWS.
ACTIVE_MAX = 500


@dataclass(frozen=True, slots=True)
class Amount:
    """vCPUs and GPUs: what shares are compared by."""

    vcpus: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.vcpus + other.vcpus, self.gpus + other.gpus)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(max(0.0, self.vcpus - other.vcpus), max(0.0, self.gpus - other.gpus))

    def times(self, factor: float) -> Amount:
        """This amount times `factor`."""
        return Amount(self.vcpus * factor, self.gpus * factor)

    def fraction_of(self, total: Amount) -> float:
        """The larger of its fractions of the total; a total of zero does not count."""
        vcpus = self.vcpus / total.vcpus if total.vcpus > 0 else 0.0
        return max(vcpus, self.gpus / total.gpus) if total.gpus > 0 else vcpus


NONE = Amount()


@dataclass(frozen=True, slots=True)
class ShareView:
    """An active share at one moment."""

    weight: float = 1.0
    #: Average over the window.
    average: Amount = NONE
    #: Held by its jobs that have a place.
    held: Amount = NONE

    @property
    def used(self) -> Amount:
        """The use that its score counts."""
        return self.average + self.held

    def score(self, total: Amount, more: Amount = NONE) -> float:
        """The score, lowest first; `more` is what this plan has added."""
        return self.weight * (self.used + more).fraction_of(total)


_NEW_SHARE = ShareView()


@dataclass(frozen=True, slots=True)
class FairShareView:
    """The fair-share policy of a queue and its active shares."""

    window_s: int
    #: The most that all environments of the queue can have.
    total: Amount
    shares: Mapping[str, ShareView] = field(default_factory=dict)
    reservation_percent: int = 0
    #: Reserved for other shares; the active ones cannot use it.
    kept: Amount = NONE

    def share(self, name: str | None) -> ShareView:
        """A share by its name; an unknown one has used nothing."""
        return self.shares.get(name or "", _NEW_SHARE)

    def score(self, name: str | None) -> float:
        """A share's score."""
        return self.share(name).score(self.total)

    @property
    def usable(self) -> Amount:
        """What the active shares may use together."""
        return self.total - self.kept

    @property
    def held(self) -> Amount:
        """What all of them hold."""
        amounts = [view.held for view in self.shares.values()]
        return Amount(sum(amount.vcpus for amount in amounts), sum(amount.gpus for amount in amounts))


def window_s(policy: FairShare) -> int:
    """The length of the window in which use counts."""
    return max(LEAST_WINDOW_S, policy.decay_s)


def averaged(average: Amount, amount: Amount, elapsed_ms: int, window: int) -> Amount:
    """An average some time later, if `amount` was held all that time; half a window is its time constant."""
    left = exp(-max(0, elapsed_ms) / (window * 500))
    return average.times(left) + amount.times(1 - left)


def weights_of(policy: FairShare, active: Iterable[str]) -> dict[str, float]:
    """The weight of each active share; shares of one prefix divide that prefix's weight among them."""
    exact = {it.identifier: it.weight for it in policy.weights if not it.identifier.endswith("*")}
    prefixes = {it.identifier[:-1]: it.weight for it in policy.weights if it.identifier.endswith("*")}
    lengths = sorted({len(prefix) for prefix in prefixes}, reverse=True)
    weights: dict[str, float] = {}
    members: dict[str, list[str]] = {}
    for name in active:
        if name in exact:
            weights[name] = exact[name]
            continue
        prefix = next((name[:length] for length in lengths if name[:length] in prefixes), None)
        if prefix is None:
            weights[name] = 1.0
        else:
            members.setdefault(prefix, []).append(name)
    for prefix, names in members.items():
        weights.update(dict.fromkeys(names, prefixes[prefix] * len(names)))
    return weights


def kept_for_others(policy: FairShare, active: int, total: Amount) -> Amount:
    """The capacity that is reserved for shares that are not active yet.

    In whole vCPUs and GPUs: no job could start in a hundredth of one, and without rounding the last one would
    stay idle.
    """
    if not policy.reservation_percent or not active:
        return NONE
    fraction = (policy.reservation_percent / 100) ** active
    return Amount(*(float(floor(amount * fraction + 1e-9)) for amount in (total.vcpus, total.gpus)))


def amount_of(resources: Resources) -> Amount:
    """The part of a job's needs that shares are compared by."""
    return Amount(resources.vcpus, resources.gpus)


def needs_of(shape: Shape, scheduling_class: SchedulingClass) -> Amount:
    """What one waiting job would hold; all nodes of a multi-node job together."""
    if scheduling_class.gang is None:
        return amount_of(shape.resources)
    needs = NONE
    for part, count in scheduling_class.gang.parts:
        needs += amount_of(part.resources).times(count)
    return needs
