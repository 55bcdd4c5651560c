"""Windfall's own operations beside AWS's: the table of all, and those that change something or describe the daemon.

Signed like everything else (service name `windfall`) and used by the command line. Decides which role each needs;
views/ spells the answers.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from windfall import __version__
from windfall.accounting.prices import Rates
from windfall.agent.errors import AgentUnreachable
from windfall.agent.reach import Stream
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.service import Call, ModelledService, PlainHandler, PlainService
from windfall.aws_api.tenants.gate import PerView, view_of
from windfall.capacity.machines import Machine
from windfall.control.commands.hosts import FenceDevice
from windfall.control.events import (
    AddImage,
    Command,
    InterruptInstance,
    InterruptJob,
    RemoveImage,
)
from windfall.control.ports import AttemptFiles
from windfall.daemon.costs import CostQueries, Owners
from windfall.daemon.directory import DataDirectory
from windfall.daemon.entering import Entering
from windfall.daemon.event_files import EventFiles
from windfall.daemon.exec_sessions import Dial, Execs, ExecSessions
from windfall.daemon.expected_ends import ExpectedEnds
from windfall.daemon.forecast_process import ForecastProcesses
from windfall.daemon.forecasts import Forecasts
from windfall.daemon.gateway import Gateway, LongReads
from windfall.daemon.hosts import Hosts
from windfall.daemon.job_files import JobFiles, Pictures
from windfall.daemon.job_turns import JobTurns
from windfall.daemon.measurements import Monitoring
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.page_capacity import PageCapacity
from windfall.daemon.page_history import PageHistory
from windfall.daemon.page_logs import PageLogs
from windfall.daemon.page_metrics import Curves, PageMetrics
from windfall.daemon.page_questions import Histograms, PageQuestions
from windfall.daemon.page_sessions import PageSessions
from windfall.daemon.questions import Questions, service_counts
from windfall.daemon.request_fields import needed_text, notice_of, optional_text, text_map, texts
from windfall.daemon.retrying import Retrying
from windfall.daemon.secrets import Secrets
from windfall.daemon.settings import Settings
from windfall.daemon.storage_places import StoragePlaces
from windfall.daemon.stored_files import StorageReaders, StoredFiles
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.daemon.watch_hub import WatchHub
from windfall.daemon.watch_topics import LOG_SIZE
from windfall.jobs.errors import NotFound, Rejected
from windfall.jobs.ids import InstanceId, JobId, MachineId
from windfall.jobs.images import ImageMapping
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import View
from windfall.store.coordination import Presence
from windfall.usher.process import read_address
from windfall.views import capacity, jobs

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
        find_key: Callable[[str], Key | None],
        host: Callable[[], Machine | None] = lambda: None,
        daemons: Callable[[], Awaitable[list[tuple[Presence, bool]]]] | None = None,
        dial: Dial = _nobody,
        leader: Callable[[], tuple[bool, str | None]] = lambda: (True, None),
        hosts: Hosts | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._hosts = hosts
        self._secrets = secrets or Secrets(DataDirectory(settings.data).secrets)
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
        self._exec_sessions = ExecSessions(dial, find_key)
        self._histograms: Histograms = {}
        self._forecast_processes = ForecastProcesses()
        self._expected_ends = ExpectedEnds(loop, self._forecast_processes)
        self._curves = Curves(files)
        self._pictures = Pictures()
        self._events = EventFiles()
        self._page_sessions = PageSessions(settings, find_key, clock_ms, leader)
        self.watches = WatchHub(self._looked_at, find_key, clock_ms, leader)
        self._readers = StorageReaders(objects, DataDirectory(settings.data).objects_file)

    def service(self) -> PlainService:
        """All of them, as one service; each call is answered from what its caller can see."""
        roles = {name: role for name, (role, _) in self._table().items()}
        return PlainService("windfall", dict.fromkeys(roles, self._answer), roles)

    async def _answer(self, call: Call) -> dict[str, Any] | Response:
        return await self._handlers.of(call.caller)[call.operation](call)

    async def _looked_at(self, call: Call) -> dict[str, Any]:
        """What those who watch are told, with the rights of the first of them."""
        if call.operation == LOG_SIZE:
            gate = TenantGateway(self._gateway, view_of(call.caller))
            return await PageLogs(gate, self._samples, self._clock_ms).size(call)
        answer = await self._answer(call)
        assert isinstance(answer, dict), "only answers in JSON can be watched"
        return answer

    def _seen_by(self, view: View) -> dict[str, PlainHandler]:
        seen = copy.copy(self)
        seen._loop = TenantGateway(self._gateway, view)  # noqa: SLF001 (a copy of its own)
        seen._long_reads = self._long_reads.over(seen._loop)  # noqa: SLF001 (as above)
        return {name: handler for name, (_, handler) in seen._table().items()}  # noqa: SLF001 (as above)

    def _table(self) -> dict[str, tuple[Role, PlainHandler]]:
        rates = Rates(self._settings.usd_gpu_hour, self._settings.usd_vcpu_hour, self._settings.spot_factor)
        secrets = self._secrets
        places = StoragePlaces(self._loop, self._objects)
        stored = StoredFiles(self._loop, self._readers)
        files = JobFiles(stored, self._samples, self._pictures, self._clock_ms)
        monitoring = self._monitoring(rates)
        questions = Questions(self._loop, self._clock_ms)
        owners = Owners(self._long_reads, DataDirectory(self._settings.data).keys)
        costs = CostQueries(self._long_reads, rates, self._clock_ms, owners=owners)
        execs = Execs(self._loop, self._exec_sessions)
        turns = JobTurns(self._loop, owners)
        entering = Entering(self._loop, self._settings.job_user)
        forecasts = self._forecasts()
        return {
            **self._page_table(questions, owners, files),
            **self._host_table(),
            "Status": (Role.READ, self.status),
            "Why": (Role.READ, questions.why),
            "WhatIf": (Role.READ, forecasts.what_if),
            "ExpectedEnds": (Role.READ, forecasts.expected_ends),
            "FindJobs": (Role.READ, questions.find_jobs),
            "Owners": (Role.READ, owners.list),
            "Attempts": (Role.READ, questions.attempts),
            "Interrupt": (Role.SUBMIT, self.interrupt),
            "Hold": (Role.SUBMIT, turns.hold),
            "Release": (Role.SUBMIT, turns.release),
            "SetPriority": (Role.SUBMIT, turns.set_priority),
            "Cost": (Role.READ, costs.cost),
            "Advise": (Role.READ, lambda call: self._adviser(rates).advise(call)),
            "Samples": (Role.READ, monitoring.samples),
            "Top": (Role.READ, monitoring.top),
            "Shares": (Role.READ, questions.shares),
            "Schedules": (Role.READ, questions.schedules),
            "ScheduleHistory": (Role.READ, questions.schedule_history),
            "Endpoints": (Role.READ, questions.endpoints),
            "Gpus": (Role.READ, questions.gpus),
            "FenceGpu": (Role.ADMIN, self.fence_gpu),
            "ListImages": (Role.READ, questions.images),
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
            "ListFiles": (Role.READ, files.list_files),
            "ReadFile": (Role.READ, files.read),
            "Down": (Role.ADMIN, self.down),
        }

    def _page_table(
        self, questions: Questions, owners: Owners, files: JobFiles
    ) -> dict[str, tuple[Role, PlainHandler]]:
        """What the page asks beyond what commands ask; all of it is for readers."""
        about = PageQuestions(
            self._loop, questions, owners, self._long_reads, self._clock_ms, self._histograms
        )
        here = PageCapacity(self._loop, self._gateway, self._samples, self._settings.data, self._clock_ms)
        logs = PageLogs(self._loop, self._samples, self._clock_ms)
        metrics = PageMetrics(self._loop, self._curves, self._clock_ms, self._events, files)
        past = PageHistory(self._loop, self._settings.data, self._clock_ms)
        handlers: dict[str, PlainHandler] = {
            "Watch": self.watches.watch,
            "CreateSession": self._page_sessions.create,
            "WhoAmI": self._page_sessions.who_am_i,
            "Jobs": about.list_jobs,
            "JobRows": about.rows,
            "Counts": about.counts,
            "Submissions": about.submissions,
            "JobPage": self._forecasts().on_page(about.job_page),
            "Marks": about.marks,
            "Whys": about.whys,
            "ArrayMap": about.array_map,
            "Alarms": here.alarms,
            "Machines": here.machines,
            "Activity": past.activity,
            "Reasons": past.reasons,
            "JobMetrics": metrics.metrics,
            "LogWindow": logs.window,
            "FindInLog": logs.find,
        }
        return {name: (Role.READ, handler) for name, handler in handlers.items()}

    def _forecasts(self) -> Forecasts:
        account_id = self._settings.account_id
        return Forecasts(self._loop, self._gateway, self._forecast_processes, self._expected_ends, account_id)

    def _host_table(self) -> dict[str, tuple[Role, PlainHandler]]:
        if self._hosts is None:
            return {}
        return {
            "ListHosts": (Role.ADMIN, self._hosts.list),
            "AddHost": (Role.ADMIN, self._hosts.add),
            "DrainHost": (Role.ADMIN, self._hosts.drain),
            "RemoveHost": (Role.ADMIN, self._hosts.remove),
            "CheckHost": (Role.ADMIN, self._hosts.check),
        }

    def _adviser(self, rates: Rates) -> Adviser:
        # The advisor is slow to load, and many daemons never need it.
        from windfall.daemon.advice import Adviser
        from windfall.views.advice import link_bytes_s

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
            lambda recording, kind: self._adviser(rates).cause(recording, kind),
        )

    async def status(self, _: Call) -> dict[str, Any]:
        """What the daemon has, what it runs and what waits."""
        seen: dict[str, Any] = await self._loop.inspect(lambda state, *_: capacity.overview(state))
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
            "usherUrl": read_address(DataDirectory(self._settings.data).usher),
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

    async def interrupt(self, call: Call) -> dict[str, Any]:
        """Take a job's or an instance's place away, with notice."""
        notice_s = notice_of(call, self._settings.notice_s)
        job, instance = call.params.get("jobId"), call.params.get("instance")
        if (not isinstance(job, str) or not job) == (not isinstance(instance, str) or not instance):
            raise ApiError(
                "Invalid", "Either jobId or instance is required (a non-empty string), and not both."
            )
        command: InterruptJob | InterruptInstance
        if isinstance(job, str) and job:
            command = InterruptJob(JobId(job), notice_s)
        else:
            command = InterruptInstance(InstanceId(str(instance)), notice_s)
        return {"noticed": await self._change(command), "noticeS": notice_s}

    async def fence_gpu(self, call: Call) -> dict[str, Any]:
        """Keep new jobs from a GPU, or allow them again when `reason` is null."""
        gpu_id, reason = call.params.get("gpuId"), call.params.get("reason")
        machine = optional_text(call, "machineId")
        if not isinstance(gpu_id, str) or not gpu_id or not (reason is None or isinstance(reason, str)):
            raise ApiError(
                "Invalid", "gpuId is required (a non-empty string); reason must be a string or null."
            )
        try:
            holder_count: int = await self._loop.execute(
                FenceDevice(gpu_id, reason, None if machine is None else MachineId(machine))
            )
        except NotFound as rejected:
            raise ApiError("NotFound", str(rejected), 404) from None
        except Rejected as rejected:
            raise ApiError("Invalid", str(rejected)) from None
        return {"gpuId": gpu_id, "reason": reason, "heldBy": holder_count}

    async def _change(self, command: Command) -> Any:
        try:
            return await self._loop.execute(command)
        except Rejected as rejected:
            raise ApiError("Rejected", str(rejected)) from None

    async def add_image(self, call: Call) -> dict[str, Any]:
        """Map an image to a directory and command of this host."""
        mapping = ImageMapping(
            needed_text(call, "pattern"),
            optional_text(call, "directory"),
            tuple(texts(call, "entrypoint")),
            text_map(call, "environment"),
        )
        if mapping.directory is not None and not mapping.directory.startswith("/"):
            raise ApiError("Invalid", f"The directory must be absolute, not {mapping.directory!r}.")
        return jobs.image(await self._loop.execute(AddImage(mapping)))

    async def remove_image(self, call: Call) -> dict[str, Any]:
        """Remove an image mapping."""
        try:
            await self._loop.execute(RemoveImage(needed_text(call, "pattern")))
        except Rejected as rejected:
            raise ApiError("NotFound", str(rejected), 404) from None
        return {}

    async def down(self, call: Call) -> dict[str, Any]:
        """Stop the daemon after this answer; running jobs go on unless `kill`."""
        return {"runningJobs": await self._begin_stop(call.params.get("kill") is True), "pid": self._pid}
