"""`windfall up`: opens the data directory, wires the parts together, serves until stopped, and shuts down in order.

The only module that knows every adapter. This process may be killed at any moment: jobs go on under their agent, and
the next daemon reads the store and adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn

from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.errors import AgentUnreachable
from windfall.agent.reach import Stream
from windfall.aws_api.batch.service import batch_service
from windfall.aws_api.cloudwatch.service import cloudwatch_service
from windfall.aws_api.iam.service import iam_service
from windfall.aws_api.logs.service import logs_service
from windfall.aws_api.protocol.application import Application
from windfall.aws_api.protocol.errors import WireError
from windfall.aws_api.protocol.keys import KeyRing, ensure_keys_file, load_keys
from windfall.aws_api.sagemaker.service import training_service
from windfall.aws_api.scheduler.service import scheduler_service
from windfall.aws_api.sts.service import sts_service
from windfall.capacity.machines import Machine
from windfall.control.ports import AttemptFiles
from windfall.daemon.directory import DataDirectory
from windfall.daemon.engine_wiring import wire_engines, wire_hosts
from windfall.daemon.errors import DaemonError
from windfall.daemon.event_delivery import check_event_settings
from windfall.daemon.event_loop import run_to_its_end, unless_stopped
from windfall.daemon.forwarding import Forwarding, LeadersFiles
from windfall.daemon.gateway import Gateway
from windfall.daemon.host_keeper import HostKeeper
from windfall.daemon.hosts import Hosts
from windfall.daemon.http_connection import HttpConnection, listen, url_of
from windfall.daemon.leading import DaemonContext, SoleDaemon, training_machines, training_settings
from windfall.daemon.log_reaper import REAP_EVERY_S, reap_logs
from windfall.daemon.measurements import MetricsPage
from windfall.daemon.object_storage import ObjectStorage, Owned
from windfall.daemon.operations import Operations
from windfall.daemon.page_files import DASHBOARD, UI, PageFiles, read_files
from windfall.daemon.secrets import Secrets
from windfall.daemon.settings import Settings
from windfall.daemon.shared_files import SharedFiles, share_files
from windfall.daemon.store_claim import keep_claim, open_own_store
from windfall.daemon.succession import Succession
from windfall.daemon.time_zones import zone_named
from windfall.daemon.usher_link import UsherLink
from windfall.daemon.usher_relay import ENDPOINTS, UsherRelay
from windfall.daemon.watch_hub import WatchHub
from windfall.engines.hosts.ssh import Ssh
from windfall.engines.provisioning import SharedStock, secrets_in
from windfall.jobs.ids import InstanceId
from windfall.jobs.resources import Resources
from windfall.jobs.states import JobState
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.store.errors import StoreError, StoreReplaced
from windfall.store.sql_store import SqlStore

log = logging.getLogger(__name__)

SERVICES = ("batch", "sagemaker", "logs", "cloudwatch", "scheduler", "sts", "iam")


@dataclass(frozen=True, slots=True)
class Ready:
    """What a daemon reports when it is ready."""

    url: str
    #: This host; None for a daemon that follows another one.
    machine: Machine | None
    live_jobs: int
    #: The address of the S3 server that was started beside the daemon, if any.
    s3_url: str | None = None
    #: The leader's address.
    leader: str | None = None


def clock_ms() -> int:
    """The time of day, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def serve(settings: Settings, ready: Callable[[Ready], None]) -> int:
    """Run the daemon in the foreground until SIGINT, SIGTERM or `windfall down`; returns the exit code."""
    check_event_settings(settings)
    directory = DataDirectory(settings.data)
    directory.prepare()
    lock = -1
    try:
        if not settings.shares_store:
            lock = directory.lock()
        store = open_own_store(settings)
        if store.coordination is not None:
            lock = directory.share(store.identity)
        keep_claim(directory.root, store)
        shared = share_files(settings, directory, store, clock_ms)
        ensure_keys_file(directory.keys, now=clock_ms())
        if shared is not None:
            shared.sync()
    except (WireError, StoreError) as error:
        raise DaemonError(str(error)) from None
    except OSError as error:
        raise _unusable(directory, error) from None
    try:
        # The port first: if it is taken, nothing must be left running.
        with listen(settings.host, settings.port) as listening:
            daemon = _opened(settings, directory, store, shared)
            code = run_to_its_end(daemon.run(listening, ready))
            if not settings.shares_store:
                _tell_what_goes_on(store)
            return code
    except StoreReplaced as error:
        raise DaemonError(
            f"{error}; the daemon has stopped, and running jobs go on."
            " Put the store back and start Windfall again"
        ) from None
    finally:
        store.close()
        os.close(lock)


def _tell_what_goes_on(store: SqlStore) -> None:
    """Say that running jobs outlive the daemon, which somebody who presses Ctrl-C may not expect."""
    running = sum(
        count
        for (_, state), count in store.counts().items()
        if state in (JobState.STARTING, JobState.RUNNING)
    )
    if running:
        jobs = "1 running job goes on" if running == 1 else f"{running:,} running jobs go on"
        log.warning("stopped; %s, and the next `windfall up` adopts what still runs", jobs)


def _opened(
    settings: Settings, directory: DataDirectory, store: SqlStore, shared: SharedFiles | None
) -> _Daemon:
    """A daemon with everything it needs to start; DaemonError says what is missing."""
    try:
        own = [key.access_key_id for key in load_keys(directory.keys)]
        addresses = [url for url in (directory.read_address(), *directory.other_addresses()) if url]
        objects = ObjectStorage(settings, os.environ, own, addresses)
        objects.open(directory.objects_file, directory.keys)
        return _Daemon(settings, directory, store, objects, shared)
    except (WireError, StoreError) as error:
        raise DaemonError(str(error)) from None
    except OSError as error:
        raise _unusable(directory, error) from None


def _unusable(directory: DataDirectory, error: OSError) -> DaemonError:
    return DaemonError(
        f"cannot use {error.filename or directory.root}: {error.strerror or error};"
        " the data directory needs free space and must belong to the user that runs the daemon"
    )


class _Daemon:
    def __init__(
        self,
        settings: Settings,
        directory: DataDirectory,
        store: SqlStore,
        objects: ObjectStorage,
        shared: SharedFiles | None,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._objects = objects
        self._shared = shared
        self._stop = asyncio.Event()
        self._kill = False
        self._watches: WatchHub | None = None
        self._keys = keys = KeyRing(directory.keys)
        self._usher = UsherLink(directory.usher, directory.keys, settings.host, settings.usher_port)
        files = AttemptDirectory(directory.logs)
        self._ssh = Ssh(str(directory.root), settings.ssh_config)
        self._daemon_id = store.identity.replace("-", "")[:12]
        stock = SharedStock(secrets_in(directory.secrets), lambda: objects.for_machines, objects.sessions)
        context = DaemonContext(
            settings,
            directory,
            files,
            wire_engines(settings, directory, files, clock_ms, stock, self._daemon_id),
            store,
            objects,
            clock_ms,
            lambda: keys.tenants,
            keys.find,
            wire_hosts(settings, directory, files, self._ssh),
            *(() if shared is None else (shared.catch_up,)),
        )
        self._files: AttemptFiles = files
        if settings.hosts_only:
            self._files = LeadersFiles(files, lambda: self._leadership.leading is not None)
        #: What all services hold; never the loop itself, which is replaced when the leader changes.
        self._gate = Gateway(store)
        self._leadership: SoleDaemon | Succession
        if store.coordination is None:
            self._leadership = SoleDaemon(context, self._gate)
        else:
            self._leadership = Succession(context, store.coordination, self._gate)
        self._training = training_settings(context, self._training_machines)

    def _owned(self) -> Owned | None:
        """All tenants, and the storage registered for them; None while another daemon leads."""
        leading = self._leadership.leading
        if leading is None:
            return None
        return {DEFAULT_TENANT, *self._keys.tenants}, leading.storage_places

    def _machine(self) -> Machine | None:
        return self._leadership.machine

    def _host_keeper(self) -> HostKeeper | None:
        leading = self._leadership.leading
        return None if leading is None else leading.hosts

    async def _dial(self, engine: str | None, instance: InstanceId) -> Stream:
        leading = self._leadership.leading
        if leading is None:
            raise AgentUnreachable("this daemon no longer leads")
        return await leading.dial(engine, instance)

    def _training_machines(self) -> Sequence[Resources]:
        return training_machines(self._leadership.leading, self._leadership.machine)

    async def run(self, listening: socket.socket, ready: Callable[[Ready], None]) -> int:
        url = self._settings.advertise or url_of(listening, self._settings.host)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        watched = self._leadership.begin(url)
        watching_s3 = asyncio.create_task(self._objects.watch(self._owned), name="s3 server watch")
        background = [asyncio.create_task(self._reap_logs(), name="log reaper")]
        background.append(asyncio.create_task(self._usher.watch(), name="usher watch"))
        if self._shared is not None:
            background.append(asyncio.create_task(self._shared.keep_in_step(), name="shared files"))
        stopping = asyncio.create_task(self._stop.wait())
        server: uvicorn.Server | None = None
        serving: asyncio.Task[None] | None = None
        try:
            # In parallel: the services read their models for as long as an agent needs to start.
            reading = asyncio.get_running_loop().run_in_executor(None, self._server_config)
            settled = await unless_stopped(asyncio.gather(self._leadership.settle(), reading), stopping)
            if settled is None:
                return 0
            machine, config = settled
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve([listening]), name="http")
            leading = self._leadership.leading
            live_jobs = 0 if leading is None else leading.live_jobs
            ready(Ready(url, machine, live_jobs, self._objects.url, self._leadership.leader))
            await asyncio.wait([stopping, serving, *watched], return_when=asyncio.FIRST_COMPLETED)
            for task in watched:
                if task.done():
                    task.result()  # A part that ended by itself has failed.
            return 0
        finally:
            watching_s3.cancel()
            for task in background:
                task.cancel()
            stopping.cancel()
            await self._shut_down(server, serving)

    async def _reap_logs(self) -> None:
        """Remove expired logs periodically, until cancelled."""
        while True:
            try:
                await self._gate.read(lambda store: reap_logs(store, self._files, clock_ms()))
            except (StoreError, OSError) as error:
                log.warning("old logs cannot be removed: %s", error)
            await asyncio.sleep(REAP_EVERY_S)

    def _server_config(self) -> uvicorn.Config:
        account = self._settings.account_id
        trainings = training_service(self._gate, account, clock_ms, self._files, self._training)
        operations = Operations(
            self._gate,
            self._settings,
            os.getpid(),
            clock_ms(),
            SERVICES,
            self._begin_stop,
            clock_ms,
            self._objects,
            trainings,
            self._files,
            self._keys.find,
            self._machine,
            self._leadership.daemons,
            self._dial,
            lambda: (self._leadership.leading is not None, self._leadership.leader),
            Hosts(self._gate, self._host_keeper, self._ssh, self._daemon_id, clock_ms),
            self._secrets(),
        )
        page = PageFiles(
            read_files(DASHBOARD), (self._settings.host, *(self._settings.page_hosts or "").split(","))
        )
        self._watches = operations.watches
        application = Application(
            [
                batch_service(
                    self._gate, account, lambda: str(uuid.uuid4()), clock_ms, self._training.storage
                ),
                trainings,
                logs_service(self._gate, self._files, account, clock_ms),
                cloudwatch_service(self._gate, self._files.recording),
                scheduler_service(self._gate, account, zone_named),
                sts_service(account),
                iam_service(account),
                operations.service(),
            ],
            self._keys,
            time.time,
            lambda: str(uuid.uuid4()),
            pages={
                "/metrics": MetricsPage(self._gate, self._files, self._keys).answer,
                "/": page.lead,
                "/ui": page.lead,
                UI: page.answer,
            },
            elsewhere=Forwarding(lambda: self._leadership.leader).forward,
            folders={ENDPOINTS: UsherRelay(lambda: self._usher.url)},
        )
        return uvicorn.Config(
            application,
            http=HttpConnection,
            ws="none",  # even if a websocket library is installed
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )

    def _secrets(self) -> Secrets:
        if self._shared is None:
            return Secrets(self._directory.secrets)
        # Only the leader's state can be inspected: a follower forwards the request.
        return Secrets(
            self._directory.secrets, self._shared.put_secret, lambda: self._gate.inspect(lambda *_: None)
        )

    async def _begin_stop(self, kill: bool) -> int:
        """Begin to stop; returns how many attempts are running."""
        leading = self._leadership.leading
        running = 0 if leading is None else await leading.running_attempts()
        self._kill = kill
        asyncio.get_running_loop().call_later(0.05, self._stop.set)
        return running

    async def _shut_down(self, server: uvicorn.Server | None, serving: asyncio.Task[None] | None) -> None:
        """Stop in order: the HTTP server first, then the control loop and the engines."""
        if self._watches is not None:
            self._watches.close()
        if server is not None and serving is not None:
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        self._usher.end(kill=self._kill)
        await self._leadership.end(kill=self._kill)
        await self._ssh.close()
        self._gate.close()
