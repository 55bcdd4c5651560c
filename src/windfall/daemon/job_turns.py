"""Hold, Release and SetPriority: what a caller can change about a job's turn.

Decides what requests may say and what the answer tells; control/ decides what becomes of the job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call
from windfall.control.commands.turns import HoldJob, ReleaseJob, SetPriority
from windfall.control.prioritizing import PRIORITY_MAX, Turn, turn_with
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.costs import Owners
from windfall.daemon.request_fields import needed_text, no_such_job
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.submitters import Submitter


class JobTurns:
    """The handlers, for one caller."""

    def __init__(self, gate: TenantGateway, owners: Owners) -> None:
        self._gate = gate
        self._owners = owners

    async def hold(self, call: Call) -> dict[str, Any]:
        """Keep a job that has not started from starting."""
        command = HoldJob(JobId(needed_text(call, "jobId")), await self._name(call))
        return {"changed": bool(await self._change(command))}

    async def release(self, call: Call) -> dict[str, Any]:
        """Let a held job start."""
        return {"changed": bool(await self._change(ReleaseJob(JobId(needed_text(call, "jobId")))))}

    async def set_priority(self, call: Call) -> dict[str, Any]:
        """Change a job's priority within its share, or, with `preview`, only say what that would do."""
        job_id, priority = JobId(needed_text(call, "jobId")), call.params.get("priority")
        preview = call.params.get("preview", False)
        if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
            raise ApiError("Invalid", f"priority is required (a whole number from 0 to {PRIORITY_MAX}).")
        if not isinstance(preview, bool):
            raise ApiError("Invalid", "preview must be true or false.")
        turn = await self._turn(job_id, priority)
        changed = False
        if not preview:
            changed = bool(await self._change(SetPriority(job_id, priority, await self._name(call))))
        return {
            "jobId": job_id,
            "changed": changed,
            "share": turn.share,
            "was": turn.priority,
            "priority": priority,
            "aheadBefore": turn.ahead,
            "aheadAfter": turn.ahead_then,
        }

    async def _turn(self, job_id: JobId, priority: int) -> Turn:
        records: list[Job] = await self._gate.read(lambda store: store.jobs([job_id]))
        if not records:
            raise no_such_job(job_id)

        def look(state: State, _: Offers, __: int) -> Turn | Rejected:
            try:
                return turn_with(state, state.jobs.get(job_id, records[0]), priority)
            except Rejected as rejected:
                return rejected

        turn = await self._gate.inspect(look)
        if isinstance(turn, Rejected):
            raise ApiError("Rejected", str(turn))
        assert isinstance(turn, Turn)
        return turn

    async def _name(self, call: Call) -> str:
        caller = call.caller
        # Its plain name, without its tenant.
        name_of = await self._owners.named(replace(caller, role=Role.READ))
        return name_of(Submitter(caller.tenant, caller.access_key_id)) or "an unnamed key"

    async def _change(self, command: HoldJob | ReleaseJob | SetPriority) -> Any:
        try:
            return await self._gate.execute(command)
        except Rejected as rejected:
            raise ApiError("Rejected", str(rejected)) from None
