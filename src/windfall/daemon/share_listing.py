"""Windfall's own operation on shares: how much each share of a queue uses, by fair share or by quota.

Turns domain values into plain JSON; decides nothing.
"""

from __future__ import annotations

from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.queue_shares import QueueShares, ShareStatus, queue_shares
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.ids import QueueName
from windfall.scheduling.fair_share import Amount


class Shares:
    """The handler, over the gate."""

    def __init__(self, gate: TenantGateway) -> None:
        self._gate = gate

    async def list(self, call: Call) -> dict[str, Any]:
        """The shares of one queue, or of all queues that have some."""
        name = call.params.get("queue")
        if not (name is None or isinstance(name, str)):
            raise ApiError("Invalid", "queue must be a string; leave it out for all queues.")

        def look(state: State, _: Offers, now: int) -> list[QueueShares]:
            names = state.queues if name is None else [QueueName(name)]
            all_shares = [queue_shares(state, queue_name, now) for queue_name in names]
            return [
                shares
                for shares in all_shares
                if shares is not None and (shares.policy is not None or name is not None)
            ]

        queues: list[QueueShares] = await self._gate.inspect(look)
        if name is not None and not queues:
            raise ApiError("NotFound", f"There is no job queue {name}; `windfall queues` lists them.", 404)
        return {"queues": [_described(shares) for shares in queues]}


def _described(queue: QueueShares) -> dict[str, Any]:
    kind = "fairshare" if queue.is_fair else "quota"
    return {
        "queue": queue.queue,
        "policy": queue.policy,
        "kind": kind if queue.policy is not None else "fifo",
        "unit": queue.unit,
        "total": _amount(queue.total),
        "used": _amount(queue.held),
        "kept": _amount(queue.kept),
        "windowSeconds": queue.window_s,
        "computeReservation": queue.reservation_percent,
        "shares": [_share(share, fair=queue.is_fair) for share in queue.shares],
    }


def _share(share: ShareStatus, *, fair: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "share": share.name,
        "used": _amount(share.held),
        "waiting": share.waiting,
        "running": share.running,
    }
    if fair:
        return described | {
            "weight": share.weight,
            "average": _amount(share.average),
            "score": share.score,
        }
    return described | {
        "sharing": share.sharing,
        "limits": dict(share.limits),
        "usedOfLimits": dict(share.used),
        "borrowed": dict(share.borrowed),
    }


def _amount(amount: Amount) -> dict[str, float]:
    return {"vcpus": amount.vcpus, "gpus": float(amount.gpus)}
