"""What is different about job queues of service jobs: one service environment, and other limits on blocked heads.

Decides what such a queue's request may look like. Must not know who waits in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import Arns, service_environment_name
from windfall.aws_api.batch.rejections import client_exception
from windfall.aws_api.batch.service_environments import TRAINING_TYPE
from windfall.capacity.environments import JobQueue
from windfall.control.service_dispatch import SERVICE_REASONS
from windfall.control.state_limits import LIMITED_REASONS

Entry = Mapping[str, Any]


def service_order(params: Mapping[str, Any]) -> Entry | None:
    """The one entry of a serviceEnvironmentOrder, with a name instead of an ARN; None for other queues."""
    entries: Sequence[Entry] = params.get("serviceEnvironmentOrder") or ()
    kind = params.get("jobQueueType")
    if not entries:
        if kind == TRAINING_TYPE:
            raise client_exception(
                f"serviceEnvironmentOrder must name the service environment of a queue of type {TRAINING_TYPE}"
            )
        return None
    if len(entries) > 1:
        raise client_exception(
            f"serviceEnvironmentOrder must name one service environment, got {len(entries)}"
        )
    if kind not in (None, TRAINING_TYPE):
        raise client_exception(f"A queue with serviceEnvironmentOrder is of type {TRAINING_TYPE}, not {kind}")
    if params.get("computeEnvironmentOrder"):
        raise client_exception(
            "computeEnvironmentOrder and serviceEnvironmentOrder cannot be used together; use two queues"
        )
    name = service_environment_name(entries[0]["serviceEnvironment"])
    return {"order": entries[0]["order"], "serviceEnvironment": name}


def limited_reasons(*, of_services: bool) -> tuple[tuple[str, ...], str]:
    """The reasons that a queue may act upon, and what it then does."""
    return (SERVICE_REASONS, "TERMINATE") if of_services else (LIMITED_REASONS, "CANCEL")


def service_order_detail(
    queue: JobQueue, orders: Mapping[str, int], arns: Arns
) -> list[dict[str, Any]] | None:
    """The serviceEnvironmentOrder of a queue's detail; None where it has none."""
    name = queue.service_environment
    if name is None:
        return None
    return [{"order": orders.get(name, 1), "serviceEnvironment": arns.service_environment(name)}]
