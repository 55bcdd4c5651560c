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

import msgspec

from windfall.accounting.prices import Rates
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.settings import AgentSettings
from windfall.aws_api.protocol.keys import Key
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.aws_api.sagemaker.endings import SageMakerTexts
from windfall.aws_api.scheduler.arns import schedule_arn
from windfall.capacity.machines import Machine
from windfall.control.events import Report
from windfall.control.instructions import CreateTraining, InvokeTarget, WriteDeadLetter
from windfall.control.rebuild import instructions_after_restart, rebuild
from windfall.control.snapshots import Offers
from windfall.control.state import DAY_MS, Rules, State
from windfall.daemon.dead_letters import DeadLetters
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.event_delivery import EventDelivery, destinations_in
from windfall.daemon.gateway import Gateway
from windfall.daemon.invoking import TickInvoker
from windfall.daemon.job_users import uids_for_tenants
from windfall.daemon.loop import ControlLoop
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.service_jobs import TrainingCreator
from windfall.daemon.settings import Settings
from windfall.daemon.time_zones import zone_named
from windfall.engines.local.engine import LocalEngine
from windfall.engines.simulated.engine import SimulatedEngine
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.jobs.containers import Runtime
from windfall.jobs.resources import Resources
from windfall.jobs.storage import StoragePlace
from windfall.scheduling.snapshot import SchedulingRules
from windfall.store.coordination import Lease, Presence
from windfall.store.errors import StoreReplaced
from windfall.store.sql_store import SqlStore

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
    files: AttemptDirectory
    store: SqlStore
    objects: ObjectStorage
    clock_ms: Callable[[], int]
    #: The tenants that have a valid key.
    tenants: Callable[[], tuple[str, ...]]
    find_key: Callable[[str], Key | None]


def rules_of(context: DaemonContext) -> Rules:
    """The core's rules, from the settings."""
    s = context.settings
    return Rules(
        SchedulingRules(int(s.reserve_after_s * 1000), int(s.idle_after_s * 1000)),
        retention_ms=int(s.retention_days * DAY_MS),
        grace_s=s.stop_grace_s,
        notice_s=s.notice_s,
        storage=context.objects.layout,
        rates=Rates(s.usd_gpu_hour, s.usd_vcpu_hour, s.spot_factor),
        unpriced_engines=frozenset({"local", None} if s.engine == "local" else {"local"}),
        runtime=Runtime(s.runtime),
        zones=zone_named,
        event_destinations=destinations_in(s),
        job_users=uids_for_tenants(s.job_users),
        aws_texts=SageMakerTexts(),
    )


def training_settings(context: DaemonContext, host: Callable[[], Resources | None]) -> TrainingSettings:
    """What training jobs need to know of this daemon; `host` returns what this machine has."""
    s = context.settings
    engine = s.training_engine or s.engine
    return TrainingSettings(
        engine=engine,
        python=s.training_python,
        storage=context.objects.layout,
        host=host if engine == "local" else lambda: None,
        spot_factor=s.spot_factor,
    )


def load_state(context: DaemonContext) -> State:
    """The state as the store has it; takes a while when there are many jobs."""
    with _spared_by_the_collector():
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

    async def settle(self) -> Machine:
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
        return self.leading.local.machine

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
        self.local = LocalEngine(self._report, self._agent_settings(), files, epoch, leased=leased)
        simulated = SimulatedEngine(
            self._report, self._fleet_settings(), files, epoch, self._market(), clock_ms, leased=leased
        )
        engines: dict[str, LocalEngine | SimulatedEngine] = {"local": self.local, "simulated": simulated}
        default = context.settings.engine
        #: The first one serves environments that name no engine.
        self._engines = {default: engines.pop(default), **engines}
        self.loop = ControlLoop(
            state, context.store, self._engines, clock_ms, self._remove_logs, context.tenants, lease
        )
        self.loop.away = lambda name: self._engines[name].away
        settings = context.settings
        training = training_settings(context, self._host)
        account, region = settings.account_id, settings.region
        host_known = self.local.connected.wait
        self._invoker = TickInvoker(
            self.loop, account, region, clock_ms, files, training, host_known, context.find_key
        )
        self._dead_letters = DeadLetters(
            self.loop,
            context.directory.dead_letters,
            settings.dead_letter_webhook,
            lambda key: schedule_arn(region, account, key),
        )
        self._creator = TrainingCreator(self.loop, account, clock_ms, files, training, host_known)
        self.loop.post_commit_tasks[CreateTraining] = self._creator.carry_out
        self.loop.post_commit_tasks[InvokeTarget] = self._invoker.carry_out
        self.loop.post_commit_tasks[WriteDeadLetter] = self._dead_letters.carry_out
        self._state = state
        self._turning: asyncio.Task[None] | None = None
        self._engine_tasks: list[asyncio.Task[None]] = []
        #: What else runs only while this daemon leads; cancelled when it lets go.
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> list[asyncio.Task[None]]:
        """Begin; returns the tasks that must not end by themselves: one that does has failed."""
        self.loop.act_after_restart(instructions_after_restart(self._state))
        self._turning = asyncio.create_task(self.loop.run(), name="control loop")
        self._engine_tasks = [
            asyncio.create_task(engine.run(), name=f"{name} engine") for name, engine in self._engines.items()
        ]
        delivery = EventDelivery(self._context.settings, self._context.store, self._context.clock_ms)
        self.loop.on_events_committed = delivery.wake
        self._tasks += delivery.start()
        return [self._turning, *self._engine_tasks, *self._tasks]

    async def first_contact(self) -> Machine:
        """Wait until the agent has reported what this host has, so that nothing is promised before."""
        assert self._turning is not None
        waits = [asyncio.create_task(event.wait()) for event in (self.local.connected, self.local.unfit)]
        waited_for = [*waits, self._turning, *self._engine_tasks]
        try:
            await asyncio.wait(waited_for, timeout=AGENT_START_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        for task in (self._turning, *self._engine_tasks):
            if task.done():
                task.result()
        if self.local.machine is None:
            log_file = self._context.directory.agent / "agent.log"
            raise DaemonError(self.local.trouble or f"the agent did not start; its log is {log_file}")
        return self.local.machine

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
                    await engine.shut_down_agent(kill=kill)
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
        self.loop.close()

    def _report(self, report: Report) -> None:
        """Takes the engines' reports; a method, because the loop is made after its engines."""
        self.loop.report(report)

    @property
    def storage_places(self) -> tuple[StoragePlace, ...]:
        """The places in object storage that an administrator has registered."""
        return tuple(self._state.storage_places.values())

    def _host(self) -> Resources | None:
        return None if self.local.machine is None else self.local.machine.total

    def _agent_settings(self) -> AgentSettings:
        s, directory = self._context.settings, self._context.directory
        return AgentSettings(
            directory=str(directory.agent),
            attempts_directory=str(directory.attempts),
            job_user=s.job_user,
            tenants_have_users=uids_for_tenants(s.job_users) is not None,
            gpus=s.gpus,
            vcpus=s.vcpus,
            memory_mib=s.memory_mib,
            hide=(str(directory.root),),
            objects_file=str(directory.objects_file),
            link_local_metadata=s.link_local_metadata,
            runtime=s.runtime,
            container_socket=s.container_socket,
            secrets_directory=str(directory.secrets),
            sample_every_s=s.sample_every_s,
            machine_samples=self._context.files.machine_samples,
        )

    def _fleet_settings(self) -> AgentSettings:
        """The agent that plays the simulated fleet: the host's size does not limit its instances."""
        return msgspec.structs.replace(
            self._agent_settings(),
            directory=str(self._context.directory.simulated_agent),
            attempts_directory=str(self._context.directory.simulated_attempts),
            hard_cpu_limit=False,
            # Only one agent per host can serve the address, and only one measures the host.
            link_local_metadata=False,
            machine_samples=None,
        )

    def _market(self) -> SimulatedSettings:
        s = self._context.settings
        return SimulatedSettings(
            boot_s=s.simulated_boot_s,
            mtbi_s=s.simulated_mtbi_s,
            notice_s=s.simulated_notice_s,
            speed=s.simulated_speed,
        )

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
def _spared_by_the_collector() -> Iterator[None]:
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
