"""What every operation of the service works with: the gate to the core, ids, the clock and the account.

Turns the core's refusals into AWS's error. Must not know any operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from windfall.aws_api.batch.arns import Arns
from windfall.aws_api.batch.rejections import client_exception
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.tenants.gate import TenantGate
from windfall.control.events import Command
from windfall.control.ports import CorePort, Store
from windfall.jobs.errors import Rejected
from windfall.jobs.storage import StorageLayout
from windfall.jobs.tenants import View

Answer = TypeVar("Answer")
#: For handlers that do not need it.
S3_FOR_ALL = StorageLayout(gives_sessions=True)


@dataclass(slots=True)
class BatchContext:
    """What the operations of the service share."""

    gate: CorePort
    account_id: str
    #: Draws a new UUID, for jobs and environments.
    new_id: Callable[[], str]
    clock_ms: Callable[[], int]
    #: Where objects are; tells whether programs of jobs get credentials for it.
    storage: StorageLayout = S3_FOR_ALL
    #: Held from reading a document to writing it back, so that two updates at once do not lose one.
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def seen_by(self, view: View) -> BatchContext:
        """The context of one caller: resources of other tenants do not exist."""
        return replace(self, gate=TenantGate(self.gate, view))

    def arns(self, call: Call) -> Arns:
        """ARNs of the region that the caller addressed."""
        return Arns(call.region, self.account_id)

    async def execute(self, command: Command) -> Any:
        """Have the core execute it; its refusal becomes a ClientException with the core's own sentence."""
        try:
            return await self.gate.execute(command)
        except Rejected as refusal:
            raise client_exception(str(refusal)) from refusal

    async def read(self, question: Callable[[Store], Answer]) -> Answer:
        """Ask the store."""
        answer: Answer = await self.gate.read(question)
        return answer
