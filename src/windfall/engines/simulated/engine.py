"""The simulated engine: instances of the catalog's types that boot, cost and are taken away, with real jobs on them.

Every instance is a machine of its own to the core, and one agent on this host runs the attempts of all of them, so that
a laptop can play a fleet. Decides what the core and the agent are told as instances come and go. A host that is taken
away takes its attempts with it: they are killed first and their ends kept back, so that the core sees them lost with
their host and not as processes that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.reach import Stream, UnixReach
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.labels import refuse_tag
from windfall.capacity.machines import Instance, InstanceState, Machine, Offer
from windfall.control.events import (
    DevicesChanged,
    InstanceLaunchFailed,
    InstanceLost,
    InstanceReady,
    InterruptionNoticed,
    RebalanceRecommended,
)
from windfall.control.instructions import (
    Instruction,
    LaunchInstance,
    StartAttempt,
    TerminateInstance,
)
from windfall.control.ports import Holdings, Sink
from windfall.engines.agent_link import AgentLink
from windfall.engines.simulated.fleet import Fleet, InstanceEvent, InstanceStage, SimulatedInstance
from windfall.engines.simulated.hardware import machine_of, real_devices
from windfall.engines.simulated.launch_book import LaunchBook
from windfall.engines.simulated.market import Fate
from windfall.engines.simulated.offering import Offerings, open_offering
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.engines.translation import to_connected, to_ended, to_messages, to_report, to_running
from windfall.jobs.ids import InstanceId

#: Makes the link to the agent; AgentLink outside of tests.
MakeLink = Callable[..., AgentLink]


class SimulatedEngine:
    """A spot market on this host."""

    name = "simulated"

    def __init__(
        self,
        sink: Sink,
        reach: UnixReach,
        files: AttemptDirectory,
        epoch: int,
        settings: SimulatedSettings,
        clock_ms: Callable[[], int],
        make_link: MakeLink = AgentLink,
        *,
        leased: bool = False,
    ) -> None:
        self._sink = sink
        self._reach = reach
        self.files = files
        self._settings = settings
        self._clock_ms = clock_ms
        self._link = make_link(reach, epoch, self._introduce, self._hear, leased=leased)
        self._book = LaunchBook(Path(reach.place, "launches.json"))
        self._fleet = Fleet()
        self._offerings = Offerings(settings)
        self._inventory: messages.Inventory | None = None
        self._wake = asyncio.Event()

    # What the core asks ---------------------------------------------------------------------------------

    @property
    def away(self) -> str | None:
        """Why the agent does not do what it is told; None while it answers, or while nothing runs there."""
        return self._link.away

    @property
    def machines(self) -> tuple[Machine, ...]:
        """None: every machine comes with its instance."""
        return ()

    @property
    def trouble(self) -> None:
        """None: there is no agent before the first launch, and nothing waits for one."""
        return

    async def settle(self, *, or_unfit: bool = False) -> None:
        """Nothing has to be known of this host."""

    async def dial(self, _instance: InstanceId) -> Stream:
        """A stream to the agent that runs the attempts of all instances."""
        return await self._reach.dial()

    def check(self, environment: ComputeEnvironment) -> None:
        """Refuse types, tags and traces that cannot be used."""
        refuse_tag(environment, self.name)
        open_offering(environment, self._settings)

    def adopt(self, holdings: Holdings) -> None:
        """Know again the instances of an earlier daemon; their time went on while nobody looked."""
        for environment in holdings.environments:
            self._offerings.see(environment)
        self._book.keep_only(
            (_key(environment) for environment in holdings.environments),
            (instance.id for instance in holdings.instances),
        )
        for instance in holdings.instances:
            self._fleet.add(self._adopted(instance))
        for token, place in holdings.attempts.items():
            if (instance_of_attempt := self._fleet.find(place)) is not None:
                self._fleet.place(token, instance_of_attempt)
        if holdings.instances or holdings.attempts or self._reach.was_up:
            self._link.wanted.set()

    def offers(self, environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """The environment's types at their price of the moment, as far as there are any."""
        offering = self._offerings.see(environment)
        if offering is None:
            return ()
        return offering.offers(self._fleet.stock(environment.name), self._inventory, self._clock_ms())

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Launch and let go; what concerns attempts is the agent's, as long as their instance is there."""
        forwarded: list[Instruction] = []
        for instruction in instructions:
            if isinstance(instruction, LaunchInstance):
                self._launch(instruction)
            elif isinstance(instruction, TerminateInstance):
                self._fleet.remove(instruction.instance)
            elif not isinstance(instruction, StartAttempt):
                forwarded.append(instruction)
            elif (instance := self._fleet.find(instruction.instance)) is None:
                self._sink(InstanceLost(instruction.instance))
            elif instance.stage is not InstanceStage.GOING:
                self._fleet.place(instruction.token, instance)
                forwarded.append(replace(instruction, gpu_ids=real_devices(instruction.gpu_ids)))
        self._link.write(to_messages(forwarded, self.files.log_path))
        self._wake.set()

    def _launch(self, launch: LaunchInstance) -> None:
        self._link.wanted.set()
        existing = self._fleet.find(launch.instance)
        if existing is not None:
            if existing.stage is InstanceStage.READY and (machine := self._machine(existing)) is not None:
                self._sink(InstanceReady(existing.id, machine))
            return
        now, offering = self._clock_ms(), self._offerings.find(launch.environment)
        if offering is None:
            reason = f"InvalidParameterValue: {self._offerings.trouble(launch.environment)}"
            self._sink(InstanceLaunchFailed(launch.instance, reason))
            return
        available = offering.available(launch.offer.type, self._fleet.stock(launch.environment), now)
        if available == 0:
            reason = (
                f"InsufficientInstanceCapacity: the simulated market of {launch.environment} has no more"
                f" {launch.offer.type} at the moment"
            )
            self._sink(InstanceLaunchFailed(launch.instance, reason))
            return
        instance = Instance(
            launch.instance, launch.environment, launch.offer.type, launch.offer.resources, launched_at=now
        )
        self._fleet.add(self._adopted(instance))

    def _adopted(self, instance: Instance) -> SimulatedInstance:
        """An instance of the core's as this engine sees it."""
        stage = InstanceStage.BOOTING if instance.state is InstanceState.LAUNCHING else InstanceStage.READY
        fate = self._fate(instance)
        if instance.reclaim_at is not None:
            stage, fate = InstanceStage.NOTICED, replace(fate, lost_at=instance.reclaim_at)
        taken_at = self._book.taken_at(instance.id)
        if taken_at is not None:
            stage = InstanceStage.GOING
        return SimulatedInstance(
            instance.id,
            instance.environment,
            instance.type,
            instance.total,
            instance.launched_at,
            fate,
            stage,
            gone_at=taken_at or 0,
        )

    def _fate(self, instance: Instance) -> Fate:
        offering = self._offerings.find(instance.environment)
        if offering is None:
            return Fate(instance.launched_at)
        number, script = 1, offering.market.tags.interrupt_at_s
        if script is not None:
            number = self._book.number(_key(offering.environment), instance.id, len(script))
        return offering.market.fate(instance.id, instance.type, number, instance.launched_at)

    # What the agent says --------------------------------------------------------------------------------

    def _introduce(self, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        """One agent stands for all instances: for each of them it tells what runs, and with the first what ended."""
        self._inventory = inventory
        ended = [result for result in results if not _is_kept_back(self._fleet.close(result.token), result)]
        staying = [
            instance
            for instance in self._fleet
            if instance.stage in (InstanceStage.READY, InstanceStage.NOTICED)
        ]
        for position, instance in enumerate(staying):
            machine = machine_of(instance.id, instance.type, instance.total, inventory)
            self._sink(to_connected(machine, inventory, () if position else ended))
        if not staying:
            # Nobody's attempts: the core asks for them to be stopped and forgotten.
            for report in (*to_running(inventory), *to_ended(ended)):
                self._sink(report)
        for instance in self._fleet:
            if instance.stage is InstanceStage.GOING:
                self._kill(instance.tokens)
                self._report_if_gone(instance)
        self._wake.set()

    def _hear(self, message: messages.ToDaemon) -> None:
        if isinstance(message, messages.Devices):
            self._see_devices(message)
            return
        instance = self._fleet.close(message.token) if isinstance(message, messages.Result) else None
        report = to_report(message)
        if report is not None and not _is_kept_back(instance, message):
            self._sink(report)
        if instance is not None:
            self._report_if_gone(instance)

    def _see_devices(self, reported: messages.Devices) -> None:
        """The host's GPUs have changed, and with them those of the instances that stand on them."""
        if self._inventory is None:
            return
        self._inventory = msgspec.structs.replace(self._inventory, gpus=reported.gpus)
        for instance in self._fleet:
            machine = (
                self._machine(instance)
                if instance.stage in (InstanceStage.READY, InstanceStage.NOTICED)
                else None
            )
            if machine is not None:
                self._sink(DevicesChanged(machine.id, machine.gpus))

    # What the market does -------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Let all happen that is due."""
        self._follow_traces(now)
        for instance in self._fleet:
            self._report_if_gone(instance)  # an earlier daemon may have taken it away
        for happening, instance in self._fleet.advance(now, can_boot=self._inventory is not None):
            if happening is InstanceEvent.BOOTED:
                if (machine := self._machine(instance)) is not None:
                    self._sink(InstanceReady(instance.id, machine))
            elif happening is InstanceEvent.ADVISED:
                self._sink(RebalanceRecommended(instance.id))
            elif happening is InstanceEvent.NOTICED:
                self._sink(InterruptionNoticed(instance.id, instance.fate.lost_at or now))
            else:
                self._take_away(instance)

    def _follow_traces(self, now: int) -> None:
        """Take back what a trace says is not to be had any more."""
        for offering in self._offerings:
            for instance in self._fleet.taken_back(offering, now):
                if instance.stage is InstanceStage.BOOTING:
                    self._fleet.remove(instance.id)
                    reason = f"InsufficientInstanceCapacity: {instance.type} was taken back while it booted"
                    self._sink(InstanceLaunchFailed(instance.id, reason))
                elif instance.fate.lost_at is None:
                    instance.fate = offering.market.end_now(instance.id, instance.fate.ready_at, now)

    def _take_away(self, instance: SimulatedInstance) -> None:
        if instance.fate.notice_at is None and instance.tokens:
            # With notice, the core knows how to read what follows.
            self._book.take(instance.id, instance.gone_at)
        self._kill(instance.tokens)
        self._report_if_gone(instance)

    def _kill(self, tokens: Iterable[str]) -> None:
        self._link.write([messages.Stop(token, 0, lose=True) for token in sorted(tokens)])

    def _report_if_gone(self, instance: SimulatedInstance) -> None:
        """Report an instance that was taken away, once nothing runs there any more."""
        if instance.stage is InstanceStage.GOING and not instance.tokens:
            self._fleet.remove(instance.id)
            self._sink(InstanceLost(instance.id))

    def _machine(self, instance: SimulatedInstance) -> Machine | None:
        if self._inventory is None:
            return None
        return machine_of(instance.id, instance.type, instance.total, self._inventory)

    # The whole ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the market going, and an agent once there is something to run, until told to close."""
        tasks = [asyncio.create_task(self._link.run()), asyncio.create_task(self._keep_time())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_time(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock_ms()
            self.advance(now)
            due = self._next_at(now)
            try:
                async with asyncio.timeout(None if due is None else max(0, due - self._clock_ms()) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _next_at(self, now: int) -> int | None:
        times = [self._fleet.next_at(can_boot=self._inventory is not None)]
        for instance in self._fleet:
            offering = self._offerings.find(instance.environment)
            if offering is not None and instance.lasts:
                times.append(offering.market.next_step_at(instance.type, now))
        return min((at for at in times if at is not None), default=None)

    async def shut_down(self, *, kill: bool) -> None:
        """End the agent, with its attempts if `kill`; without it they run on and are adopted by the next one."""
        await self._link.shut_down(kill=kill)

    def let_go(self) -> None:
        """Leave the agent to itself; the market's time goes on."""
        self._link.let_go()


def _key(environment: ComputeEnvironment) -> str:
    """What tells an environment from a later one of the same name."""
    return environment.uuid or environment.name


def _is_kept_back(instance: SimulatedInstance | None, message: messages.ToDaemon) -> bool:
    """Whether an end is not told as such, because it came with or after the end of its host."""
    if (
        instance is None
        or instance.stage is not InstanceStage.GOING
        or not isinstance(message, messages.Result)
    ):
        return False
    return message.at >= instance.gone_at
