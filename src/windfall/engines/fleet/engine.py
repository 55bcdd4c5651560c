"""An engine over any number of machines, each with an agent behind a Reach; the engines `hosts` and `ray` are one.

Decides what is offered, which agent is told what, and what is reported as machines come, fall silent, are drained and
go. What keeps one agent alive is in engines/agent_link.py, how a machine stands in standing.py. Must not know how
machines are reached or where they come from.

For those who provide machines:

    engine.add("gpu1", reach, {"gpu": "a100", "type": "p4d.24xlarge"})
    engine.drain("gpu1")                  # nothing new is placed there
    engine.drain("gpu1", deadline_at)     # and what runs has notice until then
    engine.provided("gpu1", Provider.GONE)
    engine.resume("gpu1")                 # takes attempts again
    await engine.remove("gpu1")           # its agent ends with its attempts; they go on elsewhere
    engine.member("gpu1")                 # a Member: standing, why it is closed, the machine

All may be called at any time on the loop's thread, also before `run`. A machine that was added with other labels, or
with another reach, is added again under its name. The agents' settings must leave paths of logs to the agent
(`AgentSettings.logs_directory`). A machine's identity is its agent's own: of two names that reach one machine the
second is refused, with the reason as its trouble.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import msgspec

from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.client import clock_ms
from windfall.agent.errors import AgentUnreachable
from windfall.agent.mirror_messages import LogPiece
from windfall.agent.reach import Reach, Stream
from windfall.capacity import labels as machine_labels
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import NAME_FACT, Machine, Offer
from windfall.capacity.market_tags import refuse_market_tags
from windfall.control.events import (
    AttemptExited,
    DevicesChanged,
    InstanceLaunchFailed,
    InstanceLost,
    InstanceReady,
)
from windfall.control.instructions import (
    ForgetAttempt,
    Instruction,
    LaunchInstance,
    PostCommitTask,
    StartAttempt,
    TerminateInstance,
)
from windfall.control.job_options import partition_of
from windfall.control.machine_events import MachineRemoved, StandingChanged
from windfall.control.ports import Holdings, Sink
from windfall.engines.agent_link import AgentLink
from windfall.engines.fleet.links import MachineLink, MachineLinks, end
from windfall.engines.fleet.machines import (
    NO_NOTICE,
    Machines,
    Member,
    answer_to_stranger,
    described,
    facts_of,
    notices_of,
)
from windfall.engines.fleet.mirror import MirrorFiles
from windfall.engines.fleet.plausible import LAST_MOMENT, all_believed, believed, checked
from windfall.engines.fleet.settings import FleetSettings
from windfall.engines.fleet.standing import Provider, Standing, standing_of, why_closed
from windfall.engines.translation import machine_of_host, to_connected, to_messages, to_report, with_devices
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, MachineId

log = logging.getLogger(__name__)

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class FleetEngine:
    """Every machine that was added and answers is offered to the environments that mean it."""

    def __init__(
        self,
        sink: Sink,
        files: AttemptDirectory,
        epoch: int,
        settings: FleetSettings = FleetSettings(),  # noqa: B008 (frozen: nobody can change what others get)
        *,
        leased: bool = False,
    ) -> None:
        self.name = settings.name
        self.files = files
        self._sink, self._settings = sink, settings
        self._epoch, self._leased = epoch, leased
        self._machines, self._lines = Machines(), MachineLinks()
        self._mirror = MirrorFiles(files, limit_bytes=settings.log_limit_bytes)
        settings.stock.listen(self.name, self._lines.provide)
        #: Since when each machine of an earlier daemon is waited for that no member has, on the monotonic clock.
        self._unclaimed: dict[MachineId, float] = {}
        self._offers: dict[EnvironmentName, tuple[ComputeEnvironment, tuple[Offer, ...]]] = {}

    # What those who provide machines ask ----------------------------------------------------------------

    def add(self, name: str, reach: Reach, labels: Mapping[str, str] = _NO_LABELS) -> None:
        """Have a machine from now on, or have it with other labels or over another reach; its agent is brought up."""
        labels = machine_labels.check_labels(labels.items())
        member = self._machines.members.setdefault(name, Member(name))
        member.labels = labels
        line = self._lines.find(name)
        if line is None or line.reach is not reach:
            self._lines.begin(name, MachineLink(reach, self._link(name, reach)))
        elif member.machine is not None:
            member.machine = replace(member.machine, facts=facts_of(member, member.machine, self.name))
        self._offers.clear()

    def drain(self, name: str, deadline_at: int | None = None) -> None:
        """Place nothing new on a machine; with a deadline, what runs there has notice until then."""
        member = self._machines.members[name]
        # One that never comes is none: Ray says so with the largest number.
        member.deadline_at = deadline_at if (deadline_at or 0) < LAST_MOMENT else None
        self.provided(name, Provider.DRAINING)
        self._give_notice(member)

    def resume(self, name: str) -> None:
        """Place attempts on a machine again that was drained."""
        self.provided(name, Provider.LISTED)

    def provided(self, name: str, provider: Provider) -> None:
        """What the provider of a machine says about it has changed."""
        member = self._machines.members[name]
        if provider is not Provider.DRAINING:
            member.deadline_at = None
        member.provider = provider
        self._look_at(member)

    async def remove(self, name: str) -> None:
        """Have a machine no more: its instances are lost, and its agent ends with all that runs there."""
        await end([self._lines[name]], kill=True)
        self._lines.drop(name)
        # Those too that a daemon before this one knew, and whose agent has not answered since.
        machines = self._machines.known_as(name)
        self._machines.forget(name)
        self._offers.clear()
        for machine in machines:
            self._lose(machine)
            self._sink(MachineRemoved(machine))

    def member(self, name: str) -> Member:
        """How a machine stands, and why; KeyError if there is none of that name."""
        return self._machines.members[name]

    def trouble_of(self, name: str) -> str | None:
        """Why a machine's agent does not answer, for people; None while it does."""
        return self._lines[name].link.away

    # What the core asks ---------------------------------------------------------------------------------

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The machines whose agents have described them."""
        return tuple(it.machine for it in self._machines.members.values() if it.machine is not None)

    #: None: a daemon starts whether or not its machines answer.
    trouble: str | None = None

    async def settle(self, *, or_unfit: bool = False) -> None:
        """Nothing waits for machines: those that answer are used."""

    @property
    def away(self) -> str | None:
        """Which machines have not answered yet, and why the first has not; of the others `Machine.closed` says it."""
        members = self._machines.members
        return self._lines.away(name for name in members if members[name].closed is None)

    def check(self, environment: ComputeEnvironment) -> None:
        """Refuse tags of a market, and labels that cannot be read."""
        refuse_market_tags(environment.tags, f"{environment.name} would run on real machines")
        machine_labels.check_tag(environment)
        partition_of(environment.tags)

    def adopt(self, holdings: Holdings) -> None:
        """Remember on which machine all is; nothing is placed on one before its agent answers."""
        for machine in holdings.machines:
            self._machines.remember(machine.id, machine.facts.get(NAME_FACT, ""))
            self._sink(StandingChanged(machine.id, f"{machine.facts.get(NAME_FACT)} has not answered yet"))
        self._machines.storage = dict(holdings.storage)
        for instance in holdings.instances:
            if instance.machine is not None:
                self._machines.place(instance.id, instance.machine)
        for token, place in holdings.attempts.items():
            if (machine_id := self._machines.machine_of(place)) is not None:
                alone = token in holdings.stop_alone
                self._machines.expect(token, machine_id, holdings.tasks.get(token), stops_alone=alone)
        self._lines.wake()

    def offers(self, environment: ComputeEnvironment) -> tuple[Offer, ...]:
        """One offer for each machine that is ready and that the environment means."""
        cached = self._offers.get(environment.name)
        if cached is None or cached[0] is not environment:
            cached = self._offers[environment.name] = (environment, tuple(self._machines.offers(environment)))
        return cached[1]

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Tell each agent what concerns its machine."""
        by_member: dict[str, list[Instruction]] = {}
        for instruction in instructions:
            if isinstance(instruction, LaunchInstance):
                self._launch(instruction)
            elif isinstance(instruction, TerminateInstance):
                self._machines.leave(instruction.instance)
            elif (name := self._addressee(instruction)) is not None:
                by_member.setdefault(name, []).append(instruction)
        for name, own in by_member.items():
            # An agent on another machine writes logs where it has its own directory for them.
            self._lines[name].link.write(to_messages(own, lambda _task_id: ""))

    def _launch(self, launch: LaunchInstance) -> None:
        member = self._machines.member_of(launch.offer.machine)
        if member is None or member.machine is None or member.standing is not Standing.READY:
            reason = "it was removed" if member is None else member.closed or "it has not answered yet"
            self._machines.leave(launch.instance)  # It may have been adopted.
            self._sink(InstanceLaunchFailed(launch.instance, f"the machine is not available: {reason}"))
            return
        self._machines.place(launch.instance, member.machine.id)
        self._sink(InstanceReady(launch.instance, member.machine))

    def _addressee(self, instruction: Instruction) -> str | None:
        """The member that an instruction about an attempt is for; None where nobody here has heard of it."""
        assert not isinstance(instruction, PostCommitTask)
        token: AttemptToken = getattr(instruction, "token", AttemptToken(""))
        machine = self._machines.place_of(token)
        if isinstance(instruction, ForgetAttempt):
            self._machines.drop(token)
        elif machine is None and (machine := self._machines.machine_of(instruction.instance)) is not None:
            task_id, alone = getattr(instruction, "task_id", None), getattr(instruction, "stops_alone", False)
            self._machines.expect(token, machine, task_id, stops_alone=alone)
        if machine is None and isinstance(instruction, StartAttempt):
            self._sink(InstanceLost(instruction.instance))
        member = self._machines.member_of(machine)
        return None if member is None else member.name

    async def dial(self, instance: InstanceId) -> Stream:
        """A stream to the agent of an instance's machine."""
        member = self._machines.member_of(self._machines.machine_of(instance))
        if member is None:
            raise AgentUnreachable(f"no machine has the instance {instance}")
        return await self._lines[member.name].reach.dial()

    # What agents say ------------------------------------------------------------------------------------

    def _introduce(self, name: str, inventory: messages.Inventory, results: list[messages.Result]) -> None:
        member, link = self._machines.members[name], self._lines[name].link
        member.notice = NO_NOTICE  # One that is in force is said again.
        machine = described(member, self._settings.stock.described(machine_of_host(inventory)), self.name)
        formers = [each for each in self._machines.known_as(name) if each != machine.id]
        if (refusal := self._machines.describe(member, machine)) is not None:
            raise AgentUnreachable(refusal)
        for former in formers:
            # Its agent was lost with all that it knew, and this one is a stranger to what ran there.
            self._lose(former)
            self._sink(MachineRemoved(former))
        strangers = self._machines.strangers(machine.id, (status.token for status in inventory.attempts))
        ended = [result for result in results if result.token in strangers]
        link.write([messages.Forget([result.token]) for result in ended])
        running = strangers.difference(result.token for result in ended)
        link.write([messages.Stop(token, 0, lose=True) for token in sorted(running)])
        own = [status for status in inventory.attempts if status.token not in strangers]
        link.expect(self._machines.storage_of(own))
        self._look_at(member, heard=True)
        assert member.machine is not None
        self._sink(
            to_connected(
                member.machine,
                msgspec.structs.replace(inventory, attempts=own),
                [result for result in results if result.token not in strangers],
            )
        )

    def _hear(self, name: str, message: messages.ToDaemon) -> None:
        member = self._machines.members[name]
        if member.machine is None:
            return
        if isinstance(message, messages.Devices):
            member.machine = checked(with_devices(member.machine, message), name)
            self._offers.clear()
            self._sink(DevicesChanged(member.machine.id, member.machine.gpus))
            return
        if isinstance(message, messages.Noticed):
            member.notice = message
            self._look_at(member)
            self._give_notice(member)
            return
        answer: messages.Message | None = None
        if isinstance(message, LogPiece) and self._machines.may_write(member.machine.id, message):
            answer = self._mirror.take(member.machine.id, message)
        elif not self._machines.may_speak(member.machine.id, getattr(message, "token", "")):
            answer = answer_to_stranger(message)
        elif (report := to_report(message)) is not None:
            task_id = self._machines.task_of(report.token) if isinstance(report, AttemptExited) else None
            self._mirror.once_stored(task_id, lambda: self._sink(report))
        if answer is not None:
            self._lines[name].link.write([answer])

    # How machines stand ---------------------------------------------------------------------------------

    def _look_at(self, member: Member, *, heard: bool = False) -> None:
        """Find out how a machine stands, and report what has changed."""
        link = self._lines[member.name].link
        before, closed_before = member.standing, member.closed
        shown = self._settings.silence.link(0.0 if heard else link.silent_s)
        standing = standing_of(member.provided, shown, must_wait=self._machines.must_wait(member))
        if member.machine is None:
            if standing is Standing.LOST and before is not Standing.LOST:
                self._lose_unseen(member)
            return
        member.standing = standing
        member.closed = why_closed(member.name, member.provided, member.standing, link.trouble)
        if (member.standing, member.closed) == (before, closed_before):
            return
        self._offers.clear()
        member.machine = replace(member.machine, closed=member.closed)
        if member.standing is Standing.LOST and before is not Standing.LOST:
            log.warning("%s; its jobs go on elsewhere", member.closed)
            self._lose(member.machine.id)
            link.renew()  # If it comes back, it says what it still runs, and is told to stop that.
        if not heard:
            self._sink(StandingChanged(member.machine.id, member.closed))
        if member.standing is Standing.NOTICED:
            self._give_notice(member)

    def _lose_unseen(self, member: Member) -> None:
        """Give up what an earlier daemon placed on a machine whose agent has never answered this one."""
        member.standing, link = Standing.LOST, self._lines[member.name].link
        closed = why_closed(member.name, member.provided, member.standing, link.trouble)
        for machine in self._machines.known_as(member.name):
            log.warning("%s; its jobs go on elsewhere", closed)
            self._lose(machine)
            self._sink(StandingChanged(machine, closed))

    def _give_notice(self, member: Member) -> None:
        """Tell the instances of a machine that goes by when, if that is known, or that it may go soon."""
        if member.machine is not None:
            for report in notices_of(member, self._machines.instances_on(member.machine.id)):
                self._sink(report)

    def _lose(self, machine: MachineId) -> None:
        for instance in self._machines.instances_on(machine):
            self._machines.leave(instance)
            self._sink(InstanceLost(instance))

    def _look_at_all(self) -> bool:
        """Look at all machines; the answer is whether some are waited for that nobody has added."""
        silence = self._settings.silence
        for name, line in self._lines:
            self._look_at(self._machines.members[name])
            is_silent = line.link.silent_s >= silence.tell_after_s
            if is_silent and not line.is_silence_logged:
                log.warning("%s has not answered for %.0f s", name, line.link.silent_s)
            line.is_silence_logged = is_silent
        now = self._settings.clock_s()
        self._unclaimed = {machine: self._unclaimed.get(machine, now) for machine in self._machines.unclaimed}
        for machine, since_s in self._unclaimed.items():
            if now - since_s >= silence.lose_after_s:
                log.warning("no host is the machine %s any more; its jobs go on elsewhere", machine)
                self._lose(machine)
                self._machines.give_up(machine)
                self._sink(MachineRemoved(machine))
        return bool(self._unclaimed)

    # The whole ------------------------------------------------------------------------------------------

    def _link(self, name: str, reach: Reach) -> AgentLink:
        return AgentLink(
            reach,
            self._epoch,
            lambda inventory, results: self._introduce(name, *all_believed(inventory, results, clock_ms())),
            lambda message: self._hear(name, believed(message, clock_ms())),
            replace(self._settings.patience, lose_after_s=self._settings.silence.lose_after_s),
            leased=self._leased,
            is_afar=True,
            provisioner=self._settings.stock.provisioner(),
        )

    async def run(self) -> None:
        """Keep all agents alive and look how their machines stand, until told to close."""
        await self._lines.run(self._look_at_all)

    async def shut_down(self, *, kill: bool) -> None:
        """End all agents, with their attempts if `kill`."""
        await self._lines.shut_down(kill=kill)

    def let_go(self) -> None:
        """Leave all agents to themselves."""
        self._lines.let_go()
