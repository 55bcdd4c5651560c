"""Windfall's own operations beside AWS's: status, why, images, finding a job, stopping the daemon.

Signed like everything else (service name `windfall`) and used by the command line. Turns domain values into plain
JSON; decides nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windfall import __version__
from windfall.accounting.prices import Rates
from windfall.agent.errors import AgentUnreachable
from windfall.agent.reach import Stream
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.service import Call, ModelledService, PlainHandler, PlainService
from windfall.aws_api.tenants.gate import PerView
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import Machine, own_machine
from windfall.control.events import AddImage, HoldJob, ReleaseJob, RemoveImage
from windfall.control.ports import AttemptFiles
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.calendar_listing import CalendarListing
from windfall.daemon.costs import CostQueries
from windfall.daemon.directory import DataDirectory
from windfall.daemon.entering import Entering
from windfall.daemon.exec_sessions import Dial, Execs, ExecSessions
from windfall.daemon.gateway import Gateway, LongReads
from windfall.daemon.gpus import Gpus, gpus_of
from windfall.daemon.interruptions import Interruptions
from windfall.daemon.monitoring import Monitoring
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.owners import Owners
from windfall.daemon.retrying import Retrying
from windfall.daemon.secrets import Secrets
from windfall.daemon.service_explaining import find_service_jobs, service_counts, why_service_job
from windfall.daemon.settings import Settings
from windfall.daemon.share_listing import Shares
from windfall.daemon.storage_places import StoragePlaces
from windfall.daemon.stored_files import StorageReaders, StoredFiles
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import InstanceId, JobId, split_child, split_node
from windfall.jobs.images import ImageMapping
from windfall.jobs.submitters import DEFAULT_TENANT, Submitter
from windfall.jobs.tenants import View
from windfall.store.coordination import Presence

if TYPE_CHECKING:
    from windfall.daemon.advice import Adviser


async def _nobody(_engine: str | None, _instance: InstanceId) -> Stream:
    raise AgentUnreachable("this daemon has no agents")


class Operations:
    """The handlers, over the control loop."""

    def __init__(
        self,
        loop: Gateway,
        settings: Settings,
        pid: int,
        started_at: int,
        services: tuple[str, ...],
        begin_stop: Callable[[bool], Awaitable[int]],
        clock_ms: Callable[[], int],
        objects: ObjectStorage,
        trainings: ModelledService,
        files: AttemptFiles,
        host: Callable[[], Machine | None] = lambda: None,
        daemons: Callable[[], Awaitable[list[tuple[Presence, bool]]]] | None = None,
        dial: Dial = _nobody,
    ) -> None:
        self._gateway = loop
        self._loop = TenantGateway(loop, View(DEFAULT_TENANT, sees_all=True))
        self._handlers = PerView(self._seen_by)
        self._settings = settings
        self._pid = pid
        self._started_at = started_at
        self._services = services
        self._begin_stop = begin_stop
        self._clock_ms = clock_ms
        self._objects = objects
        self._trainings = trainings
        #: This host, as its agent last described it.
        self._host = host
        self._daemons = daemons
        self._long_reads = LongReads(self._loop)
        self._samples = files
        self._exec_sessions = ExecSessions(dial)
        self._readers = StorageReaders(objects, DataDirectory(settings.data).objects_file)

    def service(self) -> PlainService:
        """All of them, as one service; each call is answered from what its caller can see."""
        roles = {name: role for name, (role, _) in self._table().items()}
        return PlainService("windfall", dict.fromkeys(roles, self._answer), roles)

    async def _answer(self, call: Call) -> dict[str, Any] | Response:
        return await self._handlers.of(call.caller)[call.operation](call)

    def _seen_by(self, view: View) -> dict[str, PlainHandler]:
        seen = copy.copy(self)
        seen._loop = TenantGateway(self._gateway, view)  # noqa: SLF001 (a copy of its own)
        seen._long_reads = self._long_reads.over(seen._loop)  # noqa: SLF001 (as above)
        return {name: handler for name, (_, handler) in seen._table().items()}  # noqa: SLF001 (as above)

    def _table(self) -> dict[str, tuple[Role, PlainHandler]]:
        interruptions = Interruptions(self._loop, self._settings.notice_s)
        rates = Rates(self._settings.usd_gpu_hour, self._settings.usd_vcpu_hour, self._settings.spot_factor)
        secrets = Secrets(DataDirectory(self._settings.data).secrets)
        places = StoragePlaces(self._loop, self._objects)
        stored = StoredFiles(self._loop, self._readers)
        monitoring = self._monitoring(rates)
        calendar = CalendarListing(self._loop, self._clock_ms)
        owners = Owners(self._long_reads, DataDirectory(self._settings.data).keys)
        costs = CostQueries(self._long_reads, rates, self._clock_ms, owners=owners)
        execs = Execs(self._loop, self._exec_sessions)
        entering = Entering(self._loop, self._settings.job_user)
        return {
            "Status": (Role.READ, self.status),
            "Why": (Role.READ, self.why),
            "FindJobs": (Role.READ, self.find_jobs),
            "Owners": (Role.READ, owners.list),
            "Attempts": (Role.READ, interruptions.attempts),
            "Interrupt": (Role.SUBMIT, interruptions.interrupt),
            "Hold": (Role.SUBMIT, lambda call: self.hold(call, owners)),
            "Release": (Role.SUBMIT, self.release),
            "Cost": (Role.READ, costs.cost),
            "Advise": (Role.READ, lambda call: self._adviser(rates).advise(call)),
            "Samples": (Role.READ, monitoring.samples),
            "Top": (Role.READ, monitoring.top),
            "Shares": (Role.READ, Shares(self._loop).list),
            "Schedules": (Role.READ, calendar.list),
            "ScheduleHistory": (Role.READ, calendar.history),
            "Gpus": (Role.READ, Gpus(self._loop).list),
            "FenceGpu": (Role.ADMIN, Gpus(self._loop).fence),
            "ListImages": (Role.READ, self.list_images),
            "AddImage": (Role.ADMIN, self.add_image),
            "RemoveImage": (Role.ADMIN, self.remove_image),
            "ListStorage": (Role.READ, places.list),
            "AddStorage": (Role.ADMIN, places.add),
            "RemoveStorage": (Role.ADMIN, places.remove),
            "SetSecret": (Role.ADMIN, secrets.set_secret),
            "ListSecrets": (Role.ADMIN, secrets.list_secrets),
            "RemoveSecret": (Role.ADMIN, secrets.remove_secret),
            "CheckDirectories": (Role.SUBMIT, entering.check),
            "StartExec": (Role.SUBMIT, execs.start),
            "ReadExec": (Role.SUBMIT, execs.read),
            "WriteExec": (Role.SUBMIT, execs.write),
            "EndExec": (Role.SUBMIT, execs.end),
            "Retry": (Role.SUBMIT, Retrying(self._loop, self._trainings).retry),
            "StoredFiles": (Role.READ, stored.describe),
            "ListStored": (Role.READ, stored.list),
            "ReadStored": (Role.READ, stored.read),
            "Down": (Role.ADMIN, self.down),
        }

    def _adviser(self, rates: Rates) -> Adviser:
        # The advisor is slow to load, and many daemons never need it.
        from windfall.daemon.advice import Adviser, link_bytes_s

        every_s = self._settings.sample_every_s
        return Adviser(
            self._long_reads,
            self._samples,
            rates,
            self._clock_ms,
            every_s,
            lambda: link_bytes_s(self._host()),
        )

    def _monitoring(self, rates: Rates) -> Monitoring:
        return Monitoring(
            self._loop,
            self._samples,
            self._clock_ms,
            self._settings.sample_every_s,
            lambda recording, job: self._adviser(rates).cause(recording, job),
        )

    async def status(self, _: Call) -> dict[str, Any]:
        """What the daemon has, what it runs and what waits."""
        seen: dict[str, Any] = await self._loop.inspect(_seen)
        counts = await self._loop.read(lambda store: store.counts())
        services = await self._loop.read(service_counts)
        for queue in seen["queues"]:
            of_jobs = {state: n for (name, state), n in counts.items() if name == queue["name"]}
            queue["counts"] = services.get(queue["name"], of_jobs)
        return {
            "version": __version__,
            "pid": self._pid,
            "data": str(self._settings.data),
            "store": self._settings.store_url.partition("://")[0],
            "startedAt": self._started_at,
            "region": self._settings.region,
            "accountId": self._settings.account_id,
            "services": list(self._services),
            "s3Url": self._objects.url,
            "objects": self._settings.objects_url,
            "engine": self._settings.engine,
            "prices": {
                "usdGpuHour": self._settings.usd_gpu_hour,
                "usdVcpuHour": self._settings.usd_vcpu_hour,
            },
            "daemons": await self._present(),
            **seen,
        }

    async def _present(self) -> list[dict[str, Any]]:
        """The daemons that share the store; empty where there can be only one."""
        present = [] if self._daemons is None else await self._daemons()
        return [{"url": daemon.address, "pid": daemon.pid, "leads": leads} for daemon, leads in present]

    async def why(self, call: Call) -> dict[str, Any]:
        """Why a job is where it is, or how it ended."""
        job_id = JobId(_text(call, "jobId"))
        live = await self._loop.why(job_id)
        parent, _ = split_node(split_child(job_id)[0])
        jobs = await self._loop.read(lambda store: store.jobs([job_id, parent]))
        if not jobs:
            for service_job in await self._loop.read(lambda store: store.service_jobs([job_id])):
                return await why_service_job(self._loop, service_job)
            raise ApiError("NotFound", f"There is no job {job_id}; `windfall jobs --all` lists them.", 404)
        submission = jobs[0].submission
        answer: dict[str, Any] = {
            "jobId": job_id,
            "jobName": submission.name,
            "jobDefinition": submission.definition,
            "changes": [],
        }
        if live is None:
            # It loads the texts of all failures, which only this operation needs.
            from windfall.daemon.endings import how_it_ended

            key = submission.definition
            definition = await self._loop.read(lambda store: store.definition(key)) if key else None
            ending = how_it_ended(jobs[0], job_id, definition)
            return answer | {"expectedAt": None, "awsReason": None} | ending
        return answer | {
            "state": live.state,
            "reasons": [{"code": code, "text": text} for code, text in live.reasons],
            "changes": live.changes,
            "expectedAt": live.expected_at,
            "awsReason": live.aws_reason,
        }

    async def hold(self, call: Call, owners: Owners) -> dict[str, Any]:
        """Keep a job that has not started from starting."""
        caller = call.caller
        name_of = await owners.named(replace(caller, role=Role.READ))  # Its plain name, without its tenant.
        by = name_of(Submitter(caller.tenant, caller.access_key_id)) or "an unnamed key"
        return {"changed": await self._change(HoldJob(JobId(_text(call, "jobId")), by))}

    async def release(self, call: Call) -> dict[str, Any]:
        """Let a held job start."""
        return {"changed": await self._change(ReleaseJob(JobId(_text(call, "jobId"))))}

    async def _change(self, command: HoldJob | ReleaseJob) -> bool:
        try:
            return bool(await self._loop.execute(command))
        except Rejected as rejected:
            raise ApiError("Rejected", str(rejected)) from None

    async def find_jobs(self, call: Call) -> dict[str, Any]:
        """Jobs by name or by id prefix."""
        text = _text(call, "text")
        job_ids = await self._loop.read(lambda store: store.find_job(text) or find_service_jobs(store, text))
        return {"jobIds": job_ids}

    async def list_images(self, _: Call) -> dict[str, Any]:
        """All image mappings."""
        return {"images": [_image(m) for m in await self._loop.read(lambda store: store.images())]}

    async def add_image(self, call: Call) -> dict[str, Any]:
        """Map an image to a directory and command of this host."""
        mapping = ImageMapping(
            _text(call, "pattern"),
            _optional_text(call, "directory"),
            tuple(_texts(call, "entrypoint")),
            _text_map(call, "environment"),
        )
        if mapping.directory is not None and not mapping.directory.startswith("/"):
            raise ApiError("Invalid", f"The directory must be absolute, not {mapping.directory!r}.")
        return _image(await self._loop.execute(AddImage(mapping)))

    async def remove_image(self, call: Call) -> dict[str, Any]:
        """Remove an image mapping."""
        try:
            await self._loop.execute(RemoveImage(_text(call, "pattern")))
        except Rejected as rejected:
            raise ApiError("NotFound", str(rejected), 404) from None
        return {}

    async def down(self, call: Call) -> dict[str, Any]:
        """Stop the daemon after this answer; running jobs go on unless `kill`."""
        return {"runningJobs": await self._begin_stop(call.params.get("kill") is True), "pid": self._pid}


def _seen(state: State, _: Offers, __: int) -> dict[str, Any]:
    """Everything that status takes from memory, in one question."""
    machine = own_machine(state.machines.values())
    described: dict[str, Any] | None = None
    warnings: list[str] = []
    if machine is not None:
        used, uids = state.occupancy.used_on(machine.id), state.rules.job_users
        warnings = [line for line in machine.facts.get("warnings", "").splitlines() if line]
        described = {
            "vcpus": machine.total.vcpus,
            "memoryMib": machine.total.memory_mib,
            "usedVcpus": used.vcpus,
            "usedMemoryMib": used.memory_mib,
            "isolation": machine.facts.get("isolation", ""),
            "jobUser": machine.facts.get("job_user", ""),
            "jobUsers": "" if uids is None else uids.words(machine.facts.get("job_user", "")),
            "gpus": gpus_of(state, machine),
        }
    return {
        "machine": described,
        "environments": [_environment(state, environment) for environment in state.environments.values()],
        "queues": [
            {"name": queue.name, "state": queue.switch, "priority": queue.priority}
            for queue in state.queues.values()
        ],
        "waiting": state.backlog.count,
        "running": len(state.attempts),
        "warnings": warnings,
    }


def _environment(state: State, environment: ComputeEnvironment) -> dict[str, Any]:
    instances = [
        instance for instance in state.instances.values() if instance.environment == environment.name
    ]
    uses = [state.occupancy.instances.get(instance.id) for instance in instances]
    return {
        "name": environment.name,
        "type": environment.provisioning,
        "state": environment.switch,
        "minvCpus": environment.min_vcpus,
        "maxvCpus": environment.max_vcpus,
        "engine": environment.engine,
        "instances": len(instances),
        "instanceList": [
            {
                "id": instance.id,
                "type": instance.type,
                "state": instance.state,
                "vcpus": instance.total.vcpus,
                "gpus": instance.total.gpus,
                "usdHour": instance.usd_hour,
                "reclaimAt": instance.reclaim_at,
                "runningJobs": len(use.holds) if use is not None else 0,
            }
            for instance, use in zip(instances, uses, strict=True)
        ],
        "runningJobs": sum(len(use.holds) for use in uses if use is not None),
    }


def _image(mapping: ImageMapping) -> dict[str, Any]:
    return {
        "pattern": mapping.pattern,
        "directory": mapping.directory,
        "entrypoint": list(mapping.entrypoint),
        "environment": dict(mapping.environment),
    }


def _text(call: Call, name: str) -> str:
    value = call.params.get(name)
    if not isinstance(value, str) or not value:
        raise ApiError("Invalid", f"{name} is required (a non-empty string).")
    return value


def _optional_text(call: Call, name: str) -> str | None:
    return None if call.params.get(name) is None else _text(call, name)


def _texts(call: Call, name: str) -> list[str]:
    value = call.params.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ApiError("Invalid", f"{name} must be a list of strings.")
    return value


def _text_map(call: Call, name: str) -> dict[str, str]:
    value = call.params.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ApiError("Invalid", f"{name} must be an object whose values are strings.")
    return value
