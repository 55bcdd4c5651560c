"""What only the leading daemon has: the state, the loop that changes it, the engines, and their tasks.

With SQLite there is one daemon and it leads for as long as it lives. With PostgreSQL a daemon may become the leader,
and may have to step down without ending: then all of this is dropped, and the next leader starts from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windfall.accounting.prices import Rates
from windfall.agent.reach import Stream
from windfall.aws_api.protocol.keys import Key
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.aws_api.sagemaker.endings import SageMakerTexts
from windfall.aws_api.scheduler.arns import schedule_arn
from windfall.capacity.machines import Machine
from windfall.control.events import Report
from windfall.control.instructions import (
    CreateTraining,
    FollowHosts,
    InvokeTarget,
    PublishRoutes,
    WriteDeadLetter,
)
from windfall.control.ports import AttemptFiles
from windfall.control.rebuild import instructions_after_restart, rebuild
from windfall.control.snapshots import Offers
from windfall.control.state import DAY_MS, Rules, State
from windfall.daemon.acting import OwnCalls, TickInvoker, TrainingCreator
from windfall.daemon.dead_letters import DeadLetters
from windfall.daemon.directory import DataDirectory
from windfall.daemon.engine_wiring import (
    MakeEngines,
    training_engine,
    trains_on_own_machines,
    unpriced_engines,
)
from windfall.daemon.errors import DaemonError
from windfall.daemon.event_delivery import EventDelivery, destinations_in
from windfall.daemon.gateway import Gateway
from windfall.daemon.host_keeper import HostKeeper, MakeReach
from windfall.daemon.job_users import uids_for_tenants
from windfall.daemon.loop import ControlLoop
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.page_history import ActivityRecorder
from windfall.daemon.policy_tables import PolicyTables
from windfall.daemon.replica_keeper import ReplicaKeeper
from windfall.daemon.settings import Settings
from windfall.daemon.time_zones import zone_named
from windfall.engines.fleet.engine import FleetEngine
from windfall.jobs.containers import Runtime
from windfall.jobs.ids import InstanceId
from windfall.jobs.resources import Resources
from windfall.jobs.storage import StoragePlace
from windfall.scheduling.snapshot import SchedulingRules
from windfall.store.coordination import Lease, Presence
from windfall.store.errors import StoreReplaced
from windfall.store.sql_store import SqlStore
from windfall.usher.process import SOCKET_NAME

log = logging.getLogger(__name__)

AGENT_START_S = 30.0
#: How often to check that the store's file is still there.
STORE_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class DaemonContext:
    """What a daemon has whether it leads or not."""

    settings: Settings
    directory: DataDirectory
    #: What attempts leave, whichever engine ran them.
    files: AttemptFiles
    make_engines: MakeEngines
    store: SqlStore
    objects: ObjectStorage
    clock_ms: Callable[[], int]
    #: The tenants that have a valid key.
    tenants: Callable[[], tuple[str, ...]]
    find_key: Callable[[str], Key | None]
    #: How the hosts that the user listed are reached; None for a daemon without them.
    reach_host: MakeReach | None = None
    #: Gets what daemons of other directories have set since; called before this one leads.
    catch_up: Callable[[], None] = lambda: None


def rules_of(context: DaemonContext) -> Rules:
    """The core's rules, from the settings."""
    s = context.settings
    return Rules(
        SchedulingRules(int(s.reserve_after_s * 1000), int(s.idle_after_s * 1000)),
        retention_ms=int(s.retention_days * DAY_MS),
        grace_s=s.stop_grace_s,
        notice_s=s.notice_s,
        changeover_s=s.changeover_s,
        policy_tables=PolicyTables(),
        storage=context.objects.layout,
        rates=Rates(s.usd_gpu_hour, s.usd_vcpu_hour, s.spot_factor),
        unpriced_engines=unpriced_engines(s),
        runtime=Runtime(s.runtime),
        zones=zone_named,
        event_destinations=destinations_in(s),
        job_users=uids_for_tenants(s.job_users),
        aws_texts=SageMakerTexts(),
    )


def training_settings(
    context: DaemonContext, machines: Callable[[], Sequence[Resources]]
) -> TrainingSettings:
    """What training jobs need to know of this daemon; `machines` returns what those of its training engine have."""
    s = context.settings
    return TrainingSettings(
        engine=training_engine(s),
        python=s.training_python,
        storage=context.objects.layout,
        machines=machines if trains_on_own_machines(s) else tuple,
        spot_factor=s.spot_factor,
    )


def training_machines(leading: Leading | None, machine: Machine | None) -> Sequence[Resources]:
    """What the machines have that training jobs run on; a daemon that does not lead knows its own alone."""
    if leading is not None:
        return leading.training_machines()
    return () if machine is None else (machine.total,)


def load_state(context: DaemonContext) -> State:
    """The state as the store has it; takes a while when there are many jobs."""
    with spared_by_the_collector():
        return rebuild(context.store.load(), rules_of(context))


class SoleDaemon:
    """The daemon of a store that no other can use: it leads as long as it lives."""

    def __init__(self, context: DaemonContext, gate: Gateway) -> None:
        self.leading = Leading(context, load_state(context), context.clock_ms())
        self._directory, self._store, self._url = context.directory, context.store, ""
        self._watcher: asyncio.Task[None] | None = None
        gate.lead(self.leading.loop)

    def begin(self, url: str) -> list[asyncio.Task[None]]:
        """Begin to lead; returns the tasks that must not end by themselves."""
        self._url = url
        self._watcher = asyncio.create_task(self._watch_store(), name="store watcher")
        return [*self.leading.start(), self._watcher]

    async def _watch_store(self) -> None:
        """End with StoreReplaced when the store's file is gone, even while nothing is written."""
        while True:
            await asyncio.sleep(STORE_LOOK_S)
            try:
                self._store.verify()
            except StoreReplaced as replaced:
                self.leading.loop.abandon(replaced)
                raise

    async def settle(self) -> Machine | None:
        """Wait until this host is known, and publish the daemon's address."""
        machine = await self.leading.first_contact()
        try:
            self._directory.write_address(self._url)
        except OSError as error:
            raise DaemonError(
                f"cannot write to {self._directory.root}: {error.strerror}; free some disk space there"
            ) from None
        return machine

    @property
    def machine(self) -> Machine | None:
        """This host, as its agent last described it."""
        return self.leading.host

    @property
    def leader(self) -> str | None:
        """The leader's address."""
        return self._url

    async def daemons(self) -> list[tuple[Presence, bool]]:
        """Empty: there is no other daemon."""
        return []

    async def end(self, *, kill: bool) -> None:
        """Stop in order; without a store jobs are left alone, because nothing about them can be recorded."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError, StoreReplaced):
                await self._watcher
        try:
            await self.leading.end(kill=kill)
        except StoreReplaced:
            await self.leading.let_go()


class Leading:
    """One term of leading, from a freshly loaded state until it is let go."""

    def __init__(self, context: DaemonContext, state: State, epoch: int, lease: Lease | None = None) -> None:
        """`epoch` identifies this term to agents; one that comes with a lease never outbids another daemon's."""
        leased = lease is not None
        self._context = context
        self.live_jobs = len(state.jobs)
        files, clock_ms = context.files, context.clock_ms
        self._engines = context.make_engines(self._report, epoch, leased)
        self.loop = ControlLoop(
            state, context.store, self._engines, clock_ms, self._remove_logs, context.tenants, lease
        )
        self.loop.away = lambda name: self._engines[name].away
        settings = context.settings
        training = training_settings(context, self.training_machines)
        account, region = settings.account_id, settings.region
        host_known = self._engines[training_engine(settings)].settle
        services = OwnCalls(self.loop, account, clock_ms, files, training, host_known)
        self._invoker = TickInvoker(services, region, context.find_key)
        self._dead_letters = DeadLetters(
            self.loop,
            context.directory.dead_letters,
            settings.dead_letter_webhook,
            lambda key: schedule_arn(region, account, key),
        )
        self._creator = TrainingCreator(services)
        self.loop.post_commit_tasks[CreateTraining] = self._creator.carry_out
        self.loop.post_commit_tasks[InvokeTarget] = self._invoker.carry_out
        self.loop.post_commit_tasks[WriteDeadLetter] = self._dead_letters.carry_out
        self._state = state
        self.hosts: HostKeeper | None = None
        if context.reach_host is not None and isinstance(engine := self._engines.get("hosts"), FleetEngine):
            self.hosts = HostKeeper(engine, lambda: state.hosts, context.reach_host)
            self.loop.post_commit_tasks[FollowHosts] = self.hosts.follow
        usher = context.directory.usher
        self._replicas = ReplicaKeeper(state, self._report, usher, usher / SOCKET_NAME)
        self.loop.post_commit_tasks[PublishRoutes] = self._replicas.publish
        self._turning: asyncio.Task[None] | None = None
        self._engine_tasks: list[asyncio.Task[None]] = []
        #: What else runs only while this daemon leads; cancelled when it lets go.
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> list[asyncio.Task[None]]:
        """Begin; returns the tasks that must not end by themselves: one that does has failed."""
        if self.hosts is not None:
            self.hosts.follow()
        self.loop.act_after_restart(instructions_after_restart(self._state))
        self._turning = asyncio.create_task(self.loop.run(), name="control loop")
        self._engine_tasks = [
            asyncio.create_task(engine.run(), name=f"{name} engine") for name, engine in self._engines.items()
        ]
        delivery = EventDelivery(self._context.settings, self._context.store, self._context.clock_ms)
        self.loop.on_events_committed = delivery.wake
        self._tasks += delivery.start()
        s = self._context.settings
        recorder = ActivityRecorder(
            self.loop,
            self._context.files,
            s.data,
            Rates(s.usd_gpu_hour, s.usd_vcpu_hour, s.spot_factor),
            self._context.clock_ms,
        )
        self._tasks.append(asyncio.create_task(recorder.run(), name="activity recorder"))
        self._tasks.append(asyncio.create_task(self._replicas.run(), name="replica keeper"))
        return [self._turning, *self._engine_tasks, *self._tasks]

    async def first_contact(self) -> Machine | None:
        """Wait until all engines know their machines, so that nothing is promised before; returns this host."""
        assert self._turning is not None
        settling = [engine.settle(or_unfit=True) for engine in self._engines.values()]
        settled = asyncio.gather(*settling)
        waited_for: list[asyncio.Future[Any]] = [settled, self._turning, *self._engine_tasks]
        try:
            await asyncio.wait(waited_for, timeout=AGENT_START_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            settled.cancel()
        for task in (self._turning, *self._engine_tasks):
            if task.done():
                task.result()
        for engine in self._engines.values():
            if (trouble := engine.trouble) is not None:
                raise DaemonError(trouble)
        return self.host

    async def running_attempts(self) -> int:
        """How many attempts there are now; answered when all earlier reports are written."""
        assert self._turning is not None
        counting = asyncio.ensure_future(self.loop.inspect(_running_attempts))
        await asyncio.wait([counting, self._turning], return_when=asyncio.FIRST_COMPLETED)
        if not counting.done():
            counting.cancel()
            self._turning.result()  # The loop has ended and will not answer.
        running: int = await counting
        return running

    async def end(self, *, kill: bool, keep_agents: bool = False) -> None:
        """Stop in order: placing, the agents if they have nothing left to do, the loop."""
        self.loop.placing = False
        if self._turning is not None and not self._turning.done():
            running = await self.running_attempts()
            if kill or not (running or keep_agents):
                for engine in self._engines.values():
                    await engine.shut_down(kill=kill)
                if self._engine_tasks:
                    await asyncio.wait(self._engine_tasks, timeout=self._context.settings.stop_grace_s + 15)
                await self.running_attempts()
                await asyncio.get_running_loop().run_in_executor(None, self._context.objects.close)
        await self.let_go()

    async def step_down(self) -> None:
        """Stop because another daemon leads: finish the write under way, and return what was asked unanswered."""
        self.loop.placing = False
        self.loop.supersede()
        if self._turning is not None:
            await asyncio.wait([self._turning])
        self.loop.abandon()
        await self.let_go()

    async def let_go(self) -> None:
        """Drop everything and leave the agents to themselves."""
        for engine in self._engines.values():
            engine.let_go()
        self._invoker.let_go()
        self._creator.let_go()
        self._dead_letters.let_go()
        turning = [] if self._turning is None else [self._turning]
        for task in (*self._tasks, *self._engine_tasks, *turning):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._replicas.close()
        self.loop.close()

    def _report(self, report: Report) -> None:
        """Takes the engines' reports; a method, because the loop is made after its engines."""
        self.loop.report(report)

    @property
    def storage_places(self) -> tuple[StoragePlace, ...]:
        """The places in object storage that an administrator has registered."""
        return tuple(self._state.storage_places.values())

    @property
    def host(self) -> Machine | None:
        """The daemon's own machine, as its agent last described it; None while it is unknown or there is none."""
        return next((machine for engine in self._engines.values() for machine in engine.machines), None)

    def training_machines(self) -> Sequence[Resources]:
        """What each machine of the training engine has, as its agent last described it."""
        engine = self._engines[training_engine(self._context.settings)]
        return [machine.total for machine in engine.machines]

    async def dial(self, engine: str | None, instance: InstanceId) -> Stream:
        """A byte stream to the agent that has an instance of an engine; None means the default engine."""
        chosen_engine = self._engines.get(engine or "") or next(iter(self._engines.values()))
        reader, writer = await chosen_engine.dial(instance)
        return reader, writer

    def _remove_logs(self, task_ids: Sequence[str]) -> None:
        def remove() -> None:
            for task_id in task_ids:
                try:
                    self._context.files.remove(task_id)
                except OSError as error:
                    log.warning("%s cannot be removed: %s", error.filename, error.strerror)

        asyncio.get_running_loop().run_in_executor(None, remove)


def _running_attempts(state: State, _: Offers, __: int) -> int:
    return len(state.attempts)


@contextlib.contextmanager
def spared_by_the_collector() -> Iterator[None]:
    """Keep what is loaded meanwhile out of every garbage collection, and collect less often from then on.

    State is a graph without cycles, so reference counts free it. With 100,000 live jobs a full collection walks all of
    them and costs a tick a tenth of a second; while they were loaded, collections took a third of the time.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        gc.enable()
