"""WhatIf and ExpectedEnds: what a change would mean for the jobs there are, and when they end, as a caller can see it.

Reads the request, has the copy made and played elsewhere, and shows the caller's jobs alone. Nothing is changed by
asking: a job that is submitted in a question goes through the handler that serves every client, up to the command.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from windfall.aws_api.batch.service import batch_service
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.serialization import encode_json
from windfall.aws_api.protocol.service import Call, OnBehalfOf, PlainHandler
from windfall.capacity.catalog.lookup import CATALOG
from windfall.capacity.machines import GpuDevice, Machine
from windfall.control.events import Command, SubmitJob
from windfall.control.ports import CorePort, Store
from windfall.control.queue_shares import QueueShares
from windfall.control.why import Why
from windfall.daemon.expected_ends import ExpectedEnds
from windfall.daemon.forecast_copies import JOBS_MAX, records_of, values_of
from windfall.daemon.forecast_process import ForecastFailed, ForecastProcesses, TooBusy
from windfall.daemon.gateway import Gateway
from windfall.daemon.request_fields import no_such_job, texts
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.forecast.what_if import Changes, Comparison, NewMachines, compare
from windfall.jobs.attempts import Market
from windfall.jobs.errors import NotFound, Rejected
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.states import TERMINAL
from windfall.views import forecasts
from windfall.views.spelling import Answer

#: Machines of one kind, and changes of one kind, in one question.
MACHINES_MAX, CHANGES_MAX = 1_000, 20
#: Jobs in one question for expected ends, and how long it may wait for them.
ENDS_MAX, WAIT_MAX_S = 1_000, 30.0


class Forecasts:
    """The handlers, for one caller."""

    def __init__(
        self,
        gate: TenantGateway,
        gateway: Gateway,
        processes: ForecastProcesses,
        ends: ExpectedEnds,
        account_id: str,
    ) -> None:
        self._gate, self._gateway, self._processes = gate, gateway, processes
        self._ends, self._account_id = ends, account_id

    async def expected_ends(self, call: Call) -> Answer:
        """When these jobs end, with ranges; waits up to `waitS` seconds for a forecast that has them."""
        ids, wait_s = [JobId(text) for text in texts(call, "jobIds")], call.params.get("waitS", 0)
        if not 1 <= len(ids) <= ENDS_MAX:
            raise ApiError("Invalid", f"jobIds is required (a list of 1 to {ENDS_MAX} job ids).")
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= WAIT_MAX_S:
            raise ApiError("Invalid", f"waitS must be a number from 0 to {WAIT_MAX_S:.0f}.")
        live = await self._gate.read(lambda store: {job.id for job in store.jobs(ids) if not job.finished})
        ranges = await self._ends.latest(live, wait_s) if live else None
        return forecasts.expected_ends(ranges, live)

    def on_page(self, page: PlainHandler) -> PlainHandler:
        """The job's page with the newest expected end, if there is one; a page never waits for it."""

        async def answered(call: Call) -> Answer | Response:
            answer = await page(call)
            if not isinstance(answer, dict) or answer["row"]["state"] in TERMINAL:
                return answer
            job_id = JobId(answer["row"]["jobId"])
            ranges = await self._ends.latest({job_id}, 0)
            end = None if ranges is None else ranges.ends.get(job_id)
            return answer if end is None else {**answer, "expectedEnd": forecasts.expected_end(end)}

        return answered

    async def what_if(self, call: Call) -> Answer:
        """How the caller's jobs would fare after some changes."""
        changes = await self._changes(call)
        values = await values_of(self._gateway)
        if values is None:
            most = f"More than {JOBS_MAX:,} jobs are live; forecasts are made for up to that many."
            raise ApiError("Invalid", most)

        async def records() -> bytes:
            return await records_of(self._gateway, values, changes.submissions)

        try:
            comparison: Comparison = await self._processes.ask(partial(compare, changes), records, values)
        except NotFound as rejected:
            raise ApiError("NotFound", str(rejected), 404) from None
        except Rejected as rejected:
            raise ApiError("Rejected", str(rejected)) from None
        except TooBusy as busy:
            raise ApiError("TooManyRequests", f"Nothing was asked: {busy}.", 429) from None
        except ForecastFailed as failed:
            raise ApiError("ServiceUnavailable", f"There is no answer: {failed}.", 503) from None
        return forecasts.comparison(comparison, self._gate.view, values["now"])

    async def _changes(self, call: Call) -> Changes:
        params, view = call.params, self._gate.view
        members = {"addMachines", "priorities", "moves", "without", "submit"}
        if unknown := sorted(set(params) - members):
            raise ApiError(
                "Invalid", f"{unknown[0][:100]} is not known; there are {', '.join(sorted(members))}."
            )
        if not any(params.get(name) for name in members):
            raise ApiError("Invalid", f"Say what to change: one or more of {', '.join(sorted(members))}.")
        priorities = {JobId(job): _priority(number) for job, number in _mapped(params, "priorities").items()}
        seen = await self._gate.read(lambda store: {job.id for job in store.jobs(list(priorities))})
        for job_id in priorities:
            if job_id not in seen:
                raise no_such_job(job_id)
        machines = await self._gateway.inspect(lambda state, *_: tuple(state.machines.values()))
        commands = [await self._command(call, each) for each in _listed(params, "submit", dict)]
        return Changes(
            machines=tuple(_new_machines(each, machines) for each in _listed(params, "addMachines", dict)),
            priorities=priorities,
            moves={
                QueueName(queue): tuple(EnvironmentName(name) for name in _names(queue, names))
                for queue, names in _mapped(params, "moves").items()
            },
            without=tuple(_listed(params, "without", str)),
            submissions=tuple(commands),
            tenant=None if view.sees_all else view.tenant,
        )

    async def _command(self, call: Call, request: dict[str, Any]) -> SubmitJob:
        """The command that a request of SubmitJob would become."""
        capturing = _Capturing(self._gateway)
        batch = batch_service(capturing, self._account_id, lambda: str(uuid.uuid4()), lambda: 0)
        await batch.perform(
            "SubmitJob", encode_json(request), OnBehalfOf(call.caller), call.region, call.request_id
        )
        (command,) = capturing.commands
        assert isinstance(command, SubmitJob), "SubmitJob has one command"
        return command


class _Capturing:
    """A gate that keeps the commands that it is given and does none. Implements control.ports.CorePort."""

    def __init__(self, gate: CorePort) -> None:
        self._gate = gate
        self.commands: list[Command] = []

    async def execute(self, command: Command, tenant: str | None = None) -> Any:  # noqa: ARG002 (the port's)
        """Keep it."""
        self.commands.append(command)

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store."""
        return await self._gate.read(question)

    async def why(self, job_id: JobId) -> Why | None:
        """As the gate behind it."""
        return await self._gate.why(job_id)

    async def queue_snapshot(self, queue: QueueName) -> list[tuple[JobId, int]]:
        """As the gate behind it."""
        return await self._gate.queue_snapshot(queue)

    async def shares(self, queue: QueueName) -> QueueShares | None:
        """As the gate behind it."""
        return await self._gate.shares(queue)


# The request -------------------------------------------------------------------------------------------------------


def _listed(params: dict[str, Any], name: str, kind: type) -> list[Any]:
    value = params.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        words = "strings" if kind is str else "objects"
        raise ApiError("Invalid", f"{name} must be a list of {words}.")
    if len(value) > CHANGES_MAX:
        raise ApiError(
            "Invalid", f"{name} has {len(value)} members; at most {CHANGES_MAX} can be asked at once."
        )
    return value


def _mapped(params: dict[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name) or {}
    if not isinstance(value, dict) or len(value) > CHANGES_MAX:
        raise ApiError("Invalid", f"{name} must be an object with at most {CHANGES_MAX} members.")
    return value


def _priority(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= 9999:
        raise ApiError("Invalid", "A priority must be a whole number from 0 to 9999.")
    return number


def _names(queue: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise ApiError("Invalid", f"moves.{queue[:100]} must be a list of names of compute environments.")
    return value


def _new_machines(each: dict[str, Any], machines: tuple[Machine, ...]) -> NewMachines:
    name, count = each.get("type"), each.get("count", 1)
    if not isinstance(name, str) or not name:
        raise ApiError(
            "Invalid", "addMachines.type is required (an instance type, or a machine that there is)."
        )
    if type(count) is not int or not 1 <= count <= MACHINES_MAX:
        raise ApiError("Invalid", f"addMachines.count must be a whole number from 1 to {MACHINES_MAX}.")
    like = [machine for machine in machines if name in (machine.id, machine.facts.get("name"))]
    if len(like) == 1:
        return NewMachines(name, count, like[0].total, like[0].gpus)
    type_ = CATALOG.find(name)
    if type_ is None:
        raise ApiError(
            "Invalid",
            f"{name[:100]} is neither an instance type nor a machine that there is;"
            " `windfall catalog` lists the types, `windfall status` the machines.",
        )
    gpus = tuple(GpuDevice("", type_.gpu_model or "GPU", type_.gpu_memory_mib) for _ in range(type_.gpus))
    return NewMachines(
        *(type_.name, count, type_.resources, gpus, type_.on_demand_usd_hour, type_.usd_hour(Market.SPOT))
    )
