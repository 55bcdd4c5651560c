"""Alarms and Machines: what needs a person, and all machines with what was measured of them.

Reads the state, the newest sample and the disk, and hands them to views/, which spells the answers.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from windfall.aws_api.protocol.service import Call
from windfall.control.ports import AttemptFiles
from windfall.daemon.gateway import Gateway
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.views.alarms import HostTrouble, alarms
from windfall.views.machines import machines, with_samples
from windfall.views.spelling import Answer


class PageCapacity:
    """The handlers, for one caller."""

    def __init__(
        self,
        gate: TenantGateway,
        gateway: Gateway,
        files: AttemptFiles,
        data: Path,
        clock_ms: Callable[[], int],
    ) -> None:
        self._gate = gate
        self._gateway = gateway
        self._files = files
        self._data = data
        self._clock_ms = clock_ms

    async def alarms(self, _: Call) -> Answer:
        """All that needs a person."""
        host = await asyncio.to_thread(self.host_trouble)
        answer: Answer = await self._gate.inspect(
            lambda state, _, now: alarms(state, self._gate.view.sees, host, now)
        )
        return answer

    def host_trouble(self) -> HostTrouble:
        """What is wrong with the daemon's host; reads the disk."""
        usage = shutil.disk_usage(self._data)
        return HostTrouble(usage.free, usage.total, tuple(self._gateway.agents_away))

    async def machines(self, _: Call) -> Answer:
        """All machines, with their GPUs and instances."""
        listed = await self._gate.inspect(lambda state, *_: machines(state))
        now = self._clock_ms()
        newest = await asyncio.to_thread(self._files.machine_head)
        return {"at": now, "machines": with_samples(listed, newest, now)}
