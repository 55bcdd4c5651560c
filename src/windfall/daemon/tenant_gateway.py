"""The gateway as one caller has it: also of the core's memory, only its own tenant's jobs can be asked about.

How much of the machines is in use, and how many jobs wait, is told of all tenants together: they share the capacity.
Must not know any operation.
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
    """What Windfall's own operations ask, on behalf of a caller."""

    def __init__(self, gateway: Gateway, view: View) -> None:
        super().__init__(gateway, view)
        self._gateway = gateway

    async def inspect(self, question: Question) -> Any:
        """Ask the state itself, in which the attempts of other tenants are not there."""
        if self.view.sees_all:
            return await self._gateway.inspect(question)

        def seen(state: State, offers: Offers, now: int) -> Any:
            return question(_seen_by(state, self.view), offers, now)

        return await self._gateway.inspect(seen)


def _seen_by(state: State, view: View) -> State:
    """The state with the attempts of one tenant; a question changes nothing, so the rest can be shared."""
    seen = copy.copy(state)
    seen.attempts = {
        token: job for token, job in state.attempts.items() if view.sees(job.submission.submitter.tenant)
    }
    return seen
