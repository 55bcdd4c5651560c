"""Why a job of a fair-share queue waits, as values: which shares go first, and what is reserved for others.

Computes only which shares go before which. Codes are for programs and do not change; texts may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from windfall.jobs.ids import QueueName
from windfall.scheduling.fair_share import Amount, FairShareView
from windfall.scheduling.wording import counted, number

if TYPE_CHECKING:  # its view of a queue is defined in this folder's fair_share.py
    from windfall.scheduling.snapshot import QueueView, SchedulingClass, Waiting

#: How many shares are named; the others are counted.
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class ShareTurn:
    """The position of the job's share in its queue, and of the job in its share."""

    code: ClassVar[str] = "SHARE_TURN"
    queue: QueueName
    share: str
    weight: float
    #: The use that its score counts: the average over the window, and what it holds now.
    average: Amount
    held: Amount
    total: Amount
    window_s: int
    score: float
    #: The shares with waiting jobs that go before it, and their scores, the lowest first.
    before: tuple[tuple[str, float], ...]
    #: How many jobs of its own share go before it.
    ahead: int

    def text(self) -> str:
        used = (
            f"its share {self.share} of queue {self.queue} holds {_amount(self.held, self.total)} and held"
            f" {_amount(self.average, self.total)} on average over the last {self.window_s:,} s, of"
            f" {_amount(self.total, self.total)}: with weight {_factor(self.weight)} its score is"
            f" {score_text(self.score)}"
        )
        ahead = f"; ahead of it in its own share: {counted(self.ahead, 'job', 'jobs')}" if self.ahead else ""
        if not self.before:
            return f"{used}, and no share that waits has a lower one{ahead}"
        named = ", ".join(f"{share} ({score_text(score)})" for share, score in self.before[:NAMED_MAX])
        more = len(self.before) - NAMED_MAX
        others = f" and {counted(more, 'other', 'others')}" if more > 0 else ""
        return f"{used}; before it go {named}{others}{ahead}"


@dataclass(frozen=True, slots=True)
class ComputeReserved:
    """What the policy's computeReservation leaves is too little for it."""

    code: ClassVar[str] = "COMPUTE_RESERVATION"
    queue: QueueName
    percent: int
    active: int
    kept: Amount
    total: Amount
    #: By all active shares, including jobs that start in this round.
    used: Amount
    needs: Amount

    def text(self) -> str:
        reserved, usable = _amount(self.kept, self.total), _amount(self.total - self.kept, self.total)
        why = f"computeReservation {self.percent}, {counted(self.active, 'active share', 'active shares')}"
        late = self.needs.vcpus > self.total.vcpus - self.kept.vcpus
        late = late or self.needs.gpus > max(0.0, self.total.gpus - self.kept.gpus)
        rest = "so that it can never start" if late else f"and {_amount(self.used, self.total)} are in use"
        return (
            f"queue {self.queue} keeps {reserved} of {_amount(self.total, self.total)} for shares that are not active"
            f" ({why}): the active ones may use {usable}, {rest}; lower computeReservation to let it start"
        )


def share_turn(
    view: QueueView, scheduling_class: SchedulingClass, waiting: Waiting, ahead: int
) -> ShareTurn | None:
    """The position of a job's share; None in queues without fair share."""
    shares = view.fair_share
    if shares is None:
        return None
    own = scheduling_class.share or ""
    mine = shares.share(own)
    score = shares.score(own)
    return ShareTurn(
        view.queue.name,
        own,
        mine.weight,
        mine.average,
        mine.held,
        shares.total,
        shares.window_s,
        score,
        _before(view, shares, (score, own), waiting),
        ahead,
    )


def _before(
    view: QueueView, shares: FairShareView, mine: tuple[float, str], waiting: Waiting
) -> tuple[tuple[str, float], ...]:
    score, own = mine
    heads: dict[str, int] = {}
    for group in view.groups:
        share = group.scheduling_class.share or ""
        if share != own:
            order = next((entry.order for entry in group.entries if entry.count > 0), waiting.order)
            heads[share] = min(heads.get(share, order), order)
    ranked = [(shares.score(share), order, share) for share, order in heads.items()]
    first = sorted(entry for entry in ranked if entry[:2] < (score, waiting.order))
    return tuple((share, share_score) for share_score, _, share in first)


def score_text(score: float) -> str:
    """A score, as precise as comparing needs."""
    return f"{score:.4f}".rstrip("0").rstrip(".") if score else "0"


def _factor(weight: float) -> str:
    return f"{weight:.4f}".rstrip("0").rstrip(".")


def _amount(amount: Amount, total: Amount) -> str:
    """vCPUs, and GPUs where there are any."""
    vcpus = counted_amount(amount.vcpus, "vCPU")
    return f"{vcpus} and {counted_amount(amount.gpus, 'GPU')}" if total.gpus > 0 else vcpus


def counted_amount(amount: float, unit: str) -> str:
    """`1 GPU`, `2.5 vCPUs`."""
    rounded = round(amount, 2)
    return f"{number(rounded)} {unit}" if rounded == 1 else f"{number(rounded)} {unit}s"
