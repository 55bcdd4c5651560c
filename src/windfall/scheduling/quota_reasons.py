"""Why a quota share keeps a job waiting, as values, with the share's numbers.

Computes nothing beyond what quotas.py returns. Codes are for programs and do not change; texts may.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from windfall.jobs.aws_texts import AwsQuotaReason
from windfall.jobs.ids import QueueName
from windfall.scheduling.quotas import Amounts, Quotas, QuotaVerdict
from windfall.scheduling.wording import number

_UNITS = {
    "VCPU": ("vCPU", "vCPUs"),
    "GPU": ("GPU", "GPUs"),
    "MEMORY": ("MiB of memory", "MiB of memory"),
}


def in_words(amounts: Amounts) -> str:
    """Amounts of units in a row: `2 GPUs and 16 vCPUs`."""
    named = [
        f"{number(amount)} {_UNITS.get(unit, (unit, unit))[amount != 1]}"
        for unit, amount in amounts.items()
        if amount
    ]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named) or "nothing"


@dataclass(frozen=True, slots=True)
class QuotaReason:
    """A job's quota share does not let it start."""

    code: ClassVar[str] = "QUOTA_SHARE"
    queue: QueueName
    share: str
    verdict: QuotaVerdict
    #: For the units that are too few: what it needs, and its share's use and limit.
    asked: Amounts
    used: Amounts
    limits: Amounts
    #: The most that its share may hold; a missing unit is not limited.
    ceiling: Amounts
    #: What shares of the queue have borrowed now, and what there is to lend.
    borrowed: Amounts
    lendable: Amounts
    #: Set if it could not start even if nothing else ran.
    aws_reason: AwsQuotaReason | None = None

    def text(self) -> str:
        if self.verdict is QuotaVerdict.UNKNOWN:
            return f"queue {self.queue} has no quota share {self.share} any more: create it, or submit the job again"
        use = f"its quota share {self.share} holds {in_words(self.used)} of {in_words(self.limits)}"
        own = f"asks for {in_words(self.asked)}; {use}"
        if self.aws_reason is not None:
            return f"{own}; it never starts so: {self.aws_reason.value.partition(' - ')[2]}"
        if self.verdict is QuotaVerdict.LIMIT:
            return f"{own}, and may not borrow"
        if self.verdict is QuotaVerdict.BORROW_LIMIT:
            return f"{own}, and may have {in_words(self.ceiling)} with what it may borrow"
        lent = f"of {in_words(self.lendable)} that shares lend, {in_words(self.borrowed)} are borrowed"
        if self.verdict is QuotaVerdict.LENT_OUT:
            return f"{own}, and others have the rest: {lent}"
        return f"{own}, and there is too little to borrow: {lent}"


def quota_words(reasons: Iterable[object]) -> str | None:
    """AWS's text for a job that its quota share can never hold, if one of these reasons says so."""
    aws_reasons = (reason.aws_reason for reason in reasons if isinstance(reason, QuotaReason))
    return next((words.value for words in aws_reasons if words is not None), None)


def quota_reason(quotas: Quotas, queue: QueueName, share: str, amounts: Amounts) -> QuotaReason:
    """Why a job may not start, with the numbers of the units that it lacks."""
    lacks = quotas.missing(share, amounts)
    used, limits = quotas.used(share), quotas.limits(share)
    return QuotaReason(
        queue,
        share,
        quotas.verdict(share, amounts),
        {unit: amounts[unit] for unit in lacks},
        {unit: used.get(unit, 0.0) for unit in lacks},
        {unit: limits[unit] for unit in lacks},
        {unit: quotas.ceiling(share, unit) for unit in lacks if quotas.ceiling(share, unit) < inf},
        {unit: quotas.borrowed(unit) for unit in lacks},
        {unit: quotas.lendable(unit) for unit in lacks},
        quotas.never(share, amounts),
    )
