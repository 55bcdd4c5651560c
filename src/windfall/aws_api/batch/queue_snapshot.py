"""GetJobQueueSnapshot: the front of a queue, and how much of its capacity each share uses.

Decides how the core's numbers read on the wire. Must not know how jobs are ordered or shares are charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windfall.aws_api.batch.arns import JOB, SERVICE_JOB, queue_name
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.queues import queue_named
from windfall.aws_api.batch.rejections import does_not_exist
from windfall.aws_api.protocol.service import Call
from windfall.control.queue_shares import QueueShares
from windfall.scheduling.fair_share import Amount

SNAPSHOT_JOBS_MAX = 100
SHARES_MAX = 20


async def get_job_queue_snapshot(context: BatchContext, call: Call) -> dict[str, Any]:
    """GetJobQueueSnapshot: the first RUNNABLE jobs in the order in which they would be dispatched, and what is used."""
    name = queue_name(call.params["jobQueue"])
    arns, now = context.arns(call), context.clock_ms()
    queue = await context.read(lambda store: queue_named(store, name))
    if queue is None:
        raise does_not_exist(arns.queue(name))
    kind = JOB if queue.service_environment is None else SERVICE_JOB
    front = (await context.gate.queue_snapshot(name))[:SNAPSHOT_JOBS_MAX]
    jobs = [{"jobArn": arns.of(kind, job_id), "earliestTimeAtPosition": since} for job_id, since in front]
    answer: dict[str, Any] = {"frontOfQueue": {"jobs": jobs, "lastUpdatedAt": now}}
    shares = await context.gate.shares(name)
    if shares is not None:
        answer["queueUtilization"] = {**_utilization(shares), "lastUpdatedAt": now}
        fronts = {share.name: share.front for share in shares.shares if share.front is not None}
        if fronts:
            first = {
                share: [{"jobArn": arns.of(kind, job_id), "earliestTimeAtPosition": since}]
                for share, (job_id, since) in fronts.items()
            }
            answer["frontOfQuotaShares"] = {"quotaShares": first, "lastUpdatedAt": now}
    return answer


def _utilization(shares: QueueShares) -> dict[str, Any]:
    utilization: dict[str, Any] = {"totalCapacityUsage": _usage(shares.held, shares)}
    if shares.is_fair:
        top = [
            {"shareIdentifier": share.name, "capacityUsage": _usage(share.held, shares)}
            for share in shares.shares[:SHARES_MAX]
        ]
        utilization["fairshareUtilization"] = {
            "activeShareCount": len(shares.shares),
            "topCapacityUtilization": top,
        }
    elif shares.shares:
        utilization["quotaShareUtilization"] = {
            "topCapacityUtilization": [
                {"quotaShareName": share.name, "capacityUsage": _by_unit(share.used)}
                for share in shares.shares[:SHARES_MAX]
            ]
        }
    return utilization


def _usage(amount: Amount, shares: QueueShares) -> list[dict[str, Any]]:
    """An amount by unit; AWS counts vCPUs (or instances) alone, and GPUs are told where there are some."""
    gpus = {"GPU": float(amount.gpus)} if shares.total.gpus > 0 else {}
    return _by_unit({shares.unit: amount.vcpus, **gpus})


def _by_unit(amounts: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"capacityUnit": unit, "quantity": float(quantity)} for unit, quantity in amounts.items()]
