"""What every operation of the service works with: the gate to the core, the account and the time zones.

Turns the core's refusals into the service's errors. Must not know any operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from windfall.aws_api.batch.paging import page
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.scheduler.errors import InvalidRequest, refusal
from windfall.aws_api.tenants.gate import TenantGate
from windfall.control.events import Command
from windfall.control.ports import CorePort, Store
from windfall.jobs.errors import Rejected
from windfall.jobs.tenants import View
from windfall.schedules.zones import Zones

Answer = TypeVar("Answer")
Item = TypeVar("Item")


@dataclass(slots=True)
class SchedulerContext:
    """What the operations of the service share."""

    gate: CorePort
    account_id: str
    zones: Zones

    def seen_by(self, view: View) -> SchedulerContext:
        """The context of one caller: resources of other tenants do not exist."""
        return replace(self, gate=TenantGate(self.gate, view))

    async def execute(self, command: Command) -> Any:
        """Have the core execute it."""
        try:
            return await self.gate.execute(command)
        except Rejected as rejected:
            raise refusal(rejected) from rejected

    async def read(self, question: Callable[[Store], Answer]) -> Answer:
        """Ask the store."""
        answer: Answer = await self.gate.read(question)
        return answer


def page_of(
    call: Call, items: list[Item], key: Callable[[Item], tuple[str | int, ...]]
) -> tuple[list[Item], str | None]:
    """The page that MaxResults and NextToken ask for, and the token of the next."""
    page_params = {"maxResults": call.params.get("MaxResults"), "nextToken": call.params.get("NextToken")}
    try:
        return page(items, key, page_params)
    except ApiError:
        raise InvalidRequest(
            "NextToken is not valid; send the one of the previous answer unchanged"
        ) from None
