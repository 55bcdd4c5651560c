"""The gateway for one caller: it shows only the jobs of the caller's tenant, in the core's memory too.

How much of the machines is in use, and how many jobs wait, counts all tenants together: they share the capacity. Must
not know any operation.
"""

from __future__ import annotations

import copy
from typing import Any

from windfall.aws_api.tenants.gate import TenantGate
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.gateway import Gateway
from windfall.daemon.loop import Question
from windfall.jobs.tenants import View


class TenantGateway(TenantGate):
    """The gate of Windfall's own operations, for one caller."""

    def __init__(self, gateway: Gateway, view: View) -> None:
        super().__init__(gateway, view)
        self._gateway = gateway

    async def inspect(self, question: Question) -> Any:
        """Ask the state itself, without the attempts of other tenants."""
        if self.view.sees_all:
            return await self._gateway.inspect(question)

        def seen(state: State, offers: Offers, now: int) -> Any:
            return question(_seen_by(state, self.view), offers, now)

        return await self._gateway.inspect(seen)


def _seen_by(state: State, view: View) -> State:
    """The state with only one tenant's attempts; a question changes nothing, so the rest can be shared."""
    seen = copy.copy(state)
    seen.attempts = {
        token: job for token, job in state.attempts.items() if view.sees(job.submission.submitter.tenant)
    }
    return seen
