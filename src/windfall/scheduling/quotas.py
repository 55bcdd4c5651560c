"""How much of a queue's capacity each quota share may hold: its own limits, and what others lend.

Plain arithmetic over amounts by unit, so that vCPUs of jobs and instances of training jobs are counted alike.
A unit for which a share has no limit is unlimited there, and is not lent. Must not know places, nor which
jobs wait.

Three rules hold for every requested unit. A share holds at most its ceiling: its limit, plus its borrow limit
if it may borrow. All shares together borrow at most what the lending shares leave unused. Borrowing never
keeps a share that reserves its limits from using them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf

from windfall.capacity.policies import UNLIMITED_BORROWING, QuotaShare, SharingStrategy
from windfall.jobs.aws_texts import AwsQuotaReason

#: An amount of each unit.
Amounts = Mapping[str, float]

#: Parts of GPUs are added and subtracted: smaller differences count as equal.
_EQUAL = 1e-6


class QuotaVerdict(StrEnum):
    """How a share's quota answers a job."""

    ADMITTED = "admitted"
    #: Its share is used up, and may not borrow.
    LIMIT = "own limits"
    #: Its share has borrowed as much as it may.
    BORROW_LIMIT = "borrow limit"
    #: Its share would have to borrow, and nothing is left to lend.
    NOTHING_LENT = "nothing to borrow"
    #: It is within its share's own limits, but others have borrowed that.
    LENT_OUT = "lent out"
    #: The share no longer exists.
    UNKNOWN = "unknown share"


class Quotas:
    """The quota shares of one queue and what each holds, changed while a plan is made."""

    __slots__ = ("_limits", "_used", "shares")

    def __init__(self, shares: Iterable[QuotaShare], used: Mapping[str, Amounts] | None = None) -> None:
        """`used` is what each share holds now, by its name."""
        self.shares = {share.name: share for share in shares}
        self._limits: dict[str, dict[str, float]] = {
            share.name: {limit.unit: limit.amount for limit in share.limits} for share in self.shares.values()
        }
        self._used: dict[str, dict[str, float]] = {name: {} for name in self.shares}
        for name, amounts in (used or {}).items():
            self.note(name, amounts)

    def note(self, share: str, amounts: Amounts, count: int = 1) -> None:
        """Count jobs that have started in a share; negative, jobs that have ended."""
        used = self._used.setdefault(share, {})
        for unit, amount in amounts.items():
            used[unit] = used.get(unit, 0.0) + amount * count

    def used(self, share: str) -> Amounts:
        """What a share holds."""
        return self._used.get(share, {})

    def limits(self, share: str) -> Amounts:
        """A share's own limits."""
        return self._limits.get(share, {})

    def ceiling(self, share: str, unit: str) -> float:
        """The most of a unit that a share may hold, regardless of other shares."""
        limit = self.limits(share).get(unit)
        if limit is None:
            return inf
        quota_share = self.shares[share]
        if quota_share.sharing is not SharingStrategy.LEND_AND_BORROW:
            return limit
        if quota_share.borrow_percent == UNLIMITED_BORROWING:
            return inf
        return limit * (1 + quota_share.borrow_percent / 100)

    def above(self, share: str) -> dict[str, float]:
        """By how much a share exceeds its own limits, for the units where it does."""
        used = self.used(share)
        over = {unit: used.get(unit, 0.0) - limit for unit, limit in self.limits(share).items()}
        return {unit: amount for unit, amount in over.items() if amount > _EQUAL}

    def borrowed(self, unit: str) -> float:
        """What all shares hold beyond their own limits."""
        return sum(
            max(0.0, self._used[name].get(unit, 0.0) - limits[unit])
            for name, limits in self._limits.items()
            if unit in limits
        )

    def lendable(self, unit: str) -> float:
        """What lending shares leave unused of their own limits, whether borrowed or not."""
        return sum(
            max(0.0, self._limits[share.name][unit] - self._used[share.name].get(unit, 0.0))
            for share in self.shares.values()
            if share.sharing is not SharingStrategy.RESERVE and unit in self._limits[share.name]
        )

    def entitles(self, share: str, amounts: Amounts, count: int = 1) -> bool:
        """Whether this many jobs stay within their share's own limits."""
        used, limits = self.used(share), self.limits(share)
        return share in self.shares and all(
            used.get(unit, 0.0) + amount * count <= limits.get(unit, inf) + _EQUAL
            for unit, amount in amounts.items()
            if amount
        )

    def verdict(self, share: str, amounts: Amounts, count: int = 1) -> QuotaVerdict:
        """Whether this many jobs may start in a share now, and what bars them if they may not."""
        if share not in self.shares:
            return QuotaVerdict.UNKNOWN
        bars = {self._at(share, unit, amount * count) for unit, amount in amounts.items() if amount}
        for verdict in (
            QuotaVerdict.LIMIT,
            QuotaVerdict.BORROW_LIMIT,
            QuotaVerdict.NOTHING_LENT,
            QuotaVerdict.LENT_OUT,
        ):
            if verdict in bars:
                return verdict
        return QuotaVerdict.ADMITTED

    def admits(self, share: str, amounts: Amounts, wanted: int = 1, *, own: bool = False) -> int:
        """How many of `wanted` equal jobs may start in a share now; with `own`, without borrowing."""
        few, most = 0, wanted
        # What bars some also bars more of them, so bisection finds the number.
        while few < most:
            middle = (few + most + 1) // 2
            free = not own or self.entitles(share, amounts, middle)
            if free and self.verdict(share, amounts, middle) is QuotaVerdict.ADMITTED:
                few = middle
            else:
                most = middle - 1
        return few

    def missing(self, share: str, amounts: Amounts) -> dict[str, float]:
        """How much of each unit must be given back, by borrowers or by its own share, before a job may start."""
        if share not in self.shares:
            return {}
        lacks = {unit: self._lack(share, unit, amount) for unit, amount in amounts.items() if amount}
        return {unit: amount for unit, amount in lacks.items() if amount > _EQUAL}

    def never(self, share: str, amounts: Amounts) -> AwsQuotaReason | None:
        """Why a job would not be admitted even if nothing else ran; None if it would."""
        limits = self.limits(share)
        beyond = {
            unit: amount - limits[unit]
            for unit, amount in amounts.items()
            if amount and amount > limits.get(unit, inf) + _EQUAL
        }
        if not beyond:
            return None
        if self.shares[share].sharing is not SharingStrategy.LEND_AND_BORROW:
            return AwsQuotaReason.LIMITS
        if any(amounts[unit] > self.ceiling(share, unit) + _EQUAL for unit in beyond):
            return AwsQuotaReason.BORROW_LIMITS
        if any(lacks > self._lent_at_most(share, unit) + _EQUAL for unit, lacks in beyond.items()):
            return AwsQuotaReason.NOT_BORROWABLE
        return None

    def _lent_at_most(self, share: str, unit: str) -> float:
        """What others would lend to a share if they used nothing."""
        return sum(
            self._limits[other.name].get(unit, 0.0)
            for other in self.shares.values()
            if other.name != share and other.sharing is not SharingStrategy.RESERVE
        )

    def _at(self, share: str, unit: str, amount: float) -> QuotaVerdict:
        """How the quota of one unit answers a request for `more` of it."""
        if self._lack(share, unit, amount) <= _EQUAL:
            return QuotaVerdict.ADMITTED
        after = self.used(share).get(unit, 0.0) + amount
        if after > self.ceiling(share, unit) + _EQUAL:
            borrows = self.shares[share].sharing is SharingStrategy.LEND_AND_BORROW
            return QuotaVerdict.BORROW_LIMIT if borrows else QuotaVerdict.LIMIT
        return (
            QuotaVerdict.NOTHING_LENT if after > self._limits[share][unit] + _EQUAL else QuotaVerdict.LENT_OUT
        )

    def _lack(self, share: str, unit: str, amount: float) -> float:
        """How much of a unit must be given back before `more` of it may be held; 0 or less if nothing."""
        limit = self.limits(share).get(unit)
        if limit is None:
            return 0.0
        used, lends = (
            self.used(share).get(unit, 0.0),
            self.shares[share].sharing is not SharingStrategy.RESERVE,
        )
        after = used + amount
        too_much = after - self.ceiling(share, unit)
        if not lends and after <= limit + _EQUAL:
            return too_much
        # What it takes of its own limit it no longer lends; what it takes beyond that it borrows.
        own = min(amount, max(0.0, limit - used))
        borrowed = self.borrowed(unit) + amount - own
        lendable = self.lendable(unit) - (own if lends else 0.0)
        return max(too_much, borrowed - lendable)
