"""`windfall up`: opens the data directory, brings the parts together, serves until told to stop, and goes gracefully.

The only module that knows every adapter. Killing this process at any moment is allowed: jobs go on under their agent,
and the next daemon reads the store and adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import uvicorn

from windfall.accounting.prices import Rates
from windfall.agent.settings import AgentSettings
from windfall.aws_api.batch.service import batch_service
from windfall.aws_api.cloudwatch.service import cloudwatch_service
from windfall.aws_api.logs.service import logs_service
from windfall.aws_api.protocol.application import Application
from windfall.aws_api.protocol.errors import ProtocolError
from windfall.aws_api.protocol.keys import Key, KeyRing, Role, ensure_keys_file, load_keys
from windfall.aws_api.sagemaker.desk import TrainingSettings
from windfall.aws_api.sagemaker.service import training_service
from windfall.aws_api.sts.service import sts_service
from windfall.capacity.machines import Machine
from windfall.control.events import Report
from windfall.control.ports import Store
from windfall.control.rebuild import instructions_after_restart, rebuild
from windfall.control.snapshots import Offers
from windfall.control.state import DAY_MS, Rules, State
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.loop import ControlLoop
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.operations import Operations
from windfall.daemon.prometheus import MetricsPage
from windfall.daemon.samples import SampleReader
from windfall.daemon.settings import Settings
from windfall.engines.local.engine import LocalEngine
from windfall.engines.simulated.engine import SimulatedEngine
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.jobs.containers import Runtime
from windfall.jobs.resources import Resources
from windfall.scheduling.snapshot import SchedulingRules
from windfall.store.errors import StoreError
from windfall.store.opening import open_store

log = logging.getLogger(__name__)

SERVICES = ("batch", "sagemaker", "logs", "cloudwatch", "sts")
AGENT_START_S = 30.0


@dataclass(frozen=True, slots=True)
class Ready:
    """What a daemon that has just come up has to say."""

    url: str
    machine: Machine
    live_jobs: int
    #: Where the S3 server answers that was started beside the daemon, if one was.
    s3_url: str | None = None


def clock_ms() -> int:
    """The time of day, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def serve(settings: Settings, ready: Callable[[Ready], None]) -> int:
    """Run the daemon in the foreground until SIGINT, SIGTERM or `windfall down`; the answer is the exit code."""
    directory = DataDirectory(settings.data)
    directory.prepare()
    lock = directory.lock()
    try:
        ensure_keys_file(directory.keys, now=clock_ms())
        store = open_store(settings.store_url)
    except (ProtocolError, StoreError) as error:
        raise DaemonError(str(error)) from None
    try:
        objects = ObjectStorage(settings, os.environ)
        objects.open(_first_admin_key(directory), directory.objects_file)
        with asyncio.Runner(loop_factory=_event_loop) as runner:
            return runner.run(_Daemon(settings, directory, store, objects).run(ready))
    finally:
        store.close()
        os.close(lock)


def _first_admin_key(directory: DataDirectory) -> Key | None:
    """Whose key the S3 server knows: the one that `windfall env` exports, if there is one."""
    valid = (key for key in load_keys(directory.keys) if key.revoked_at is None)
    return next((key for key in valid if key.role is Role.ADMIN), None)


def _event_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


class _Daemon:
    def __init__(
        self, settings: Settings, directory: DataDirectory, store: Store, objects: ObjectStorage
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._store = store
        self._objects = objects
        self._stop = asyncio.Event()
        self._kill = False
        self._keys = KeyRing(directory.keys)
        with _spared_by_the_collector():
            state = rebuild(store.load(), self._rules())
        self._live_jobs = len(state.jobs)
        epoch = clock_ms()
        self._local = LocalEngine(self._report, self._agent_settings(), directory.logs, epoch)
        simulated = SimulatedEngine(
            self._report, self._fleet_settings(), directory.logs, epoch, self._market(), clock_ms
        )
        engines: dict[str, LocalEngine | SimulatedEngine] = {"local": self._local, "simulated": simulated}
        #: The first one serves environments that name none.
        self._engines = {settings.engine: engines.pop(settings.engine), **engines}
        self._loop = ControlLoop(
            state, store, self._engines, clock_ms, self._remove_logs, lambda: self._keys.tenants > 1
        )
        self._loop.act_after_restart(instructions_after_restart(state))

    def _report(self, report: Report) -> None:
        """The engine's sink: a method, because the loop is made after its engines."""
        self._loop.report(report)

    def _rules(self) -> Rules:
        s = self._settings
        return Rules(
            SchedulingRules(int(s.reserve_after_s * 1000), int(s.idle_after_s * 1000)),
            retention_ms=int(s.retention_days * DAY_MS),
            grace_s=s.stop_grace_s,
            notice_s=s.notice_s,
            checkpoint_root=self._objects.checkpoint_root,
            rates=Rates(s.usd_gpu_hour, s.usd_vcpu_hour, s.spot_factor),
            runtime=Runtime(s.runtime),
        )

    def _agent_settings(self) -> AgentSettings:
        s = self._settings
        return AgentSettings(
            directory=str(self._directory.agent),
            attempts_directory=str(self._directory.attempts),
            job_user=s.job_user,
            gpus=s.gpus,
            vcpus=s.vcpus,
            memory_mib=s.memory_mib,
            hide=(str(self._directory.root),),
            objects_file=str(self._directory.objects_file),
            link_local_metadata=s.link_local_metadata,
            runtime=s.runtime,
            container_socket=s.container_socket,
            secrets_directory=str(self._directory.secrets),
            sample_every_s=s.sample_every_s,
            machine_samples=str(self._directory.logs / "machine.samples"),
        )

    def _fleet_settings(self) -> AgentSettings:
        """The agent that plays the simulated fleet: the host's size does not bound what its instances have."""
        return msgspec.structs.replace(
            self._agent_settings(),
            directory=str(self._directory.simulated_agent),
            attempts_directory=str(self._directory.simulated_attempts),
            hard_cpu_limit=False,
            # The address is the host's; one agent of it can serve it, and one measures the host.
            link_local_metadata=False,
            machine_samples=None,
        )

    def _market(self) -> SimulatedSettings:
        s = self._settings
        return SimulatedSettings(
            boot_s=s.simulated_boot_s,
            mtbi_s=s.simulated_mtbi_s,
            notice_s=s.simulated_notice_s,
            speed=s.simulated_speed,
        )

    def _training(self) -> TrainingSettings:
        engine = self._settings.training_engine or self._settings.engine
        return TrainingSettings(
            engine=engine,
            python=self._settings.training_python,
            object_root=self._objects.bucket_root,
            host=self._host if engine == "local" else lambda: None,
            spot_factor=self._settings.spot_factor,
        )

    def _host(self) -> Resources | None:
        return None if self._local.machine is None else self._local.machine.total

    def _remove_logs(self, task_ids: Sequence[str]) -> None:
        def remove() -> None:
            for task_id in task_ids:
                for name in (f"{task_id}.log", f"{task_id}.log.times", f"{task_id}.samples"):
                    (self._directory.logs / name).unlink(missing_ok=True)

        asyncio.get_running_loop().run_in_executor(None, remove)

    async def run(self, ready: Callable[[Ready], None]) -> int:
        listening = _listen(self._settings)
        url = _url(listening, self._settings.host)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        turning = asyncio.create_task(self._loop.run(), name="control loop")
        engines = [
            asyncio.create_task(engine.run(), name=f"{name} engine") for name, engine in self._engines.items()
        ]
        server: uvicorn.Server | None = None
        serving: asyncio.Task[None] | None = None
        try:
            # The services read their models, which takes as long as an agent needs to start.
            reading = asyncio.get_running_loop().run_in_executor(None, self._server_config)
            machine, config = await asyncio.gather(self._first_contact(turning), reading)
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve([listening]), name="http")
            self._directory.write_address(url)
            ready(Ready(url, machine, self._live_jobs, self._objects.url))
            stopping = asyncio.create_task(self._stop.wait())
            watched = [turning, *engines]
            await asyncio.wait([stopping, serving, *watched], return_when=asyncio.FIRST_COMPLETED)
            for task in watched:
                if task.done():
                    task.result()  # A part that ended by itself has a fault to tell.
            return 0
        finally:
            await self._go(server, serving, turning, engines)

    async def _first_contact(self, turning: asyncio.Task[None]) -> Machine:
        """Wait until the agent has said what this host has, so that nothing is promised before."""
        connected = asyncio.create_task(self._local.connected.wait())
        await asyncio.wait([connected, turning], timeout=AGENT_START_S, return_when=asyncio.FIRST_COMPLETED)
        connected.cancel()
        if turning.done():
            turning.result()
        if self._local.machine is None:
            raise DaemonError(f"the agent did not start; its log is {self._directory.agent / 'agent.log'}")
        return self._local.machine

    def _server_config(self) -> uvicorn.Config:
        operations = Operations(
            self._loop,
            self._settings,
            os.getpid(),
            clock_ms(),
            SERVICES,
            self._go_down,
            clock_ms,
            self._objects.url,
            lambda: self._local.machine,
        )
        account = self._settings.account_id
        samples = SampleReader(self._directory.logs)
        application = Application(
            [
                batch_service(self._loop, account, new_id=lambda: str(uuid.uuid4()), clock_ms=clock_ms),
                training_service(self._loop, account, clock_ms, self._directory.logs, self._training()),
                logs_service(self._loop, self._directory.logs, account, clock_ms),
                cloudwatch_service(self._loop, samples.recording),
                sts_service(account),
                operations.service(),
            ],
            self._keys,
            time.time,
            lambda: str(uuid.uuid4()),
            pages={"/metrics": MetricsPage(self._loop, samples, self._keys).answer},
        )
        return uvicorn.Config(
            application,
            http="httptools",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )

    async def _go_down(self, kill: bool) -> int:
        """Begin to stop; the answer is how many attempts run now."""
        running: int = await self._loop.inspect(_running_attempts)
        self._kill = kill
        asyncio.get_running_loop().call_later(0.05, self._stop.set)
        return running

    async def _go(
        self,
        server: uvicorn.Server | None,
        serving: asyncio.Task[None] | None,
        turning: asyncio.Task[None],
        engines: list[asyncio.Task[None]],
    ) -> None:
        """Stop in order: no new requests, nothing new placed, the agent if it has nothing left to do, the loop."""
        self._loop.placing = False
        if server is not None and serving is not None:
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        if not turning.done():
            running: int = await self._loop.inspect(_running_attempts)
            if self._kill or not running:
                for engine in self._engines.values():
                    await engine.shut_down_agent(kill=self._kill)
                await asyncio.wait(engines, timeout=self._settings.stop_grace_s + 15)
                await self._loop.inspect(_running_attempts)  # answered when all their reports are written
                await asyncio.get_running_loop().run_in_executor(None, self._objects.close)
        for engine in self._engines.values():
            engine.let_go()
        for task in (*engines, turning):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._loop.close()


def _running_attempts(state: State, _: Offers, __: int) -> int:
    return len(state.attempts)


@contextlib.contextmanager
def _spared_by_the_collector() -> Iterator[None]:
    """Keep what is loaded meanwhile out of every collection, and collect less often from then on.

    State is a graph without cycles, so reference counts free it. With 100,000 live jobs a full collection walks all of
    them and costs a tick a tenth of a second; while they are loaded, collections took a third of the time.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        gc.enable()


def _listen(settings: Settings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(512)
        listening.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
    except OSError as error:
        raise DaemonError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror};"
            " choose another with --port (0 takes a free one)"
        ) from None
    return listening


def _url(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
