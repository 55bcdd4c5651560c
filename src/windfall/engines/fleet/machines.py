"""Which machines an engine has, under which names, and what is on each: its instances and the attempts placed there.

Decides which machine may speak about which attempt, and that a machine has one name. Pure: no link, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from windfall.agent import messages
from windfall.agent.mirror_messages import LogHave, LogPiece
from windfall.capacity import labels as machine_labels
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import ENGINE_FACT, NAME_FACT, Machine, Offer
from windfall.control.events import Report
from windfall.engines.fleet.plausible import implausible
from windfall.engines.fleet.standing import Provider, Standing
from windfall.engines.translation import to_notices
from windfall.jobs.ids import AttemptToken, InstanceId, MachineId
from windfall.jobs.storage import StorageAccess

#: The fact that has the labels under which a machine was added.
LABELS_FACT = "labels"
NO_NOTICE = messages.Noticed()


@dataclass(slots=True)
class Member:
    """One machine under its name, whether its agent has answered yet or not."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    provider: Provider = Provider.LISTED
    #: When it goes at the latest, in milliseconds since the epoch; None where nothing presses.
    deadline_at: int | None = None
    #: What its agent says about the machine itself going: on a spot instance, its cloud tells the machine.
    notice: messages.Noticed = NO_NOTICE
    #: As its agent last described it; None before that.
    machine: Machine | None = None
    standing: Standing = Standing.DOUBTED
    #: Why nothing new is placed there, for people.
    closed: str | None = None

    @property
    def goes_at(self) -> int | None:
        """When it goes at the latest, by its provider or by its own word; None where nothing presses."""
        deadlines = [at for at in (self.deadline_at, self.notice.deadline_at) if at is not None]
        return min(deadlines, default=None)

    @property
    def provided(self) -> Provider:
        """What its provider says about it, or has said to the machine alone."""
        listed = self.provider in (Provider.LISTED, Provider.SILENT)
        return Provider.DRAINING if listed and self.notice.deadline_at is not None else self.provider


class Machines:
    """The members of one engine, and where its instances and attempts are."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        #: The name under which each machine was reached, by this daemon or an earlier one.
        self._names: dict[MachineId, str] = {}
        self._instances: dict[InstanceId, MachineId] = {}
        self._attempts: dict[AttemptToken, MachineId] = {}
        #: The task ids of attempts, which name their files, in both directions.
        self._tasks: dict[AttemptToken, str] = {}
        self._tokens: dict[str, AttemptToken] = {}
        #: The attempts that stop by themselves on a machine which is cut off.
        self._stop_alone: set[AttemptToken] = set()
        #: What adopted attempts may use of object storage, until their machines have introduced themselves.
        self.storage: dict[AttemptToken, StorageAccess] = {}

    def storage_of(self, attempts: Iterable[messages.AttemptStatus]) -> dict[str, StorageAccess]:
        """Take what adopted attempts of a machine may use of object storage."""
        accesses = {it.token: self.storage.pop(AttemptToken(it.token), None) for it in attempts}
        return {token: access for token, access in accesses.items() if access is not None}

    # Names ----------------------------------------------------------------------------------------------

    def remember(self, machine: MachineId, name: str) -> None:
        """Know from an earlier daemon which name has a machine, so that no other can take its place meanwhile."""
        self._names.setdefault(machine, name)

    def describe(self, member: Member, machine: Machine) -> str | None:
        """Take what an agent says of its machine; the answer is why it cannot be, where another name has it."""
        if (lie := implausible(machine)) is not None:
            return f"{member.name} says of itself what cannot be: {lie}"
        holder = self._names.get(machine.id, member.name)
        if holder != member.name and holder in self.members:
            return (
                f"{member.name} and {holder} reach the same machine, {machine.facts.get('hostname', machine.id)};"
                " remove one of them"
            )
        self._unname(member.name)
        self._names[machine.id] = member.name
        member.machine = machine
        return None

    def _unname(self, name: str) -> None:
        for machine in self.known_as(name):
            del self._names[machine]

    def forget(self, name: str) -> None:
        """Know a member no more."""
        del self.members[name]
        self._unname(name)

    def known_as(self, name: str) -> list[MachineId]:
        """The machines that this name has had, for this daemon or an earlier one."""
        return [machine for machine, holder in self._names.items() if holder == name]

    def give_up(self, machine: MachineId) -> None:
        """Know nothing more of a machine that no member has."""
        self._names.pop(machine, None)

    def member_of(self, machine: MachineId | None) -> Member | None:
        """The member that has a machine."""
        return None if machine is None else self.members.get(self._names.get(machine, ""))

    # What is there --------------------------------------------------------------------------------------

    def place(self, instance: InstanceId, machine: MachineId) -> None:
        """An instance is on a machine."""
        self._instances[instance] = machine

    def leave(self, instance: InstanceId) -> None:
        """An instance is gone."""
        self._instances.pop(instance, None)

    def machine_of(self, instance: InstanceId | None) -> MachineId | None:
        """None for an instance that is not here (any more)."""
        return None if instance is None else self._instances.get(instance)

    def instances_on(self, machine: MachineId) -> list[InstanceId]:
        """The instances of a machine."""
        return [instance for instance, place in self._instances.items() if place == machine]

    @property
    def unclaimed(self) -> set[MachineId]:
        """The machines that no member has: their host was removed while no daemon ran."""
        machines = {*self._instances.values(), *self._names}
        return {machine for machine in machines if self.member_of(machine) is None}

    def expect(
        self,
        token: AttemptToken,
        machine: MachineId,
        task_id: str | None = None,
        *,
        stops_alone: bool = False,
    ) -> None:
        """An attempt was placed on a machine, which may speak of it from now on."""
        self._attempts[token] = machine
        if task_id is not None:
            self._tasks[token], self._tokens[task_id] = task_id, token
        if stops_alone:
            self._stop_alone.add(token)

    def must_wait(self, member: Member) -> bool:
        """Whether a provider's word must not shorten the wait: attempts there need all of it to stop by themselves."""
        if member.provided is not Provider.GONE:
            return False
        machines = (self._attempts.get(token) for token in self._stop_alone)
        return any(self._names.get(machine) == member.name for machine in machines if machine is not None)

    def drop(self, token: AttemptToken) -> None:
        """Nobody has to hear of an attempt any more."""
        self._attempts.pop(token, None)
        self._stop_alone.discard(token)
        if (task_id := self._tasks.pop(token, None)) is not None:
            del self._tokens[task_id]

    def task_of(self, token: str) -> str | None:
        """What names the files of an attempt; None where nobody has said."""
        return self._tasks.get(AttemptToken(token))

    def place_of(self, token: AttemptToken) -> MachineId | None:
        """The machine that an attempt was placed on."""
        return self._attempts.get(token)

    # Who may say what -----------------------------------------------------------------------------------

    def may_speak(self, machine: MachineId, token: str) -> bool:
        """Whether an attempt was placed on this machine and not yet forgotten."""
        return self._attempts.get(AttemptToken(token)) == machine

    def may_write(self, machine: MachineId, piece: LogPiece) -> bool:
        """Whether a file is the machine's own, or an attempt's that was placed on it."""
        if piece.kind == "machine":
            return True
        token = self._tokens.get(piece.task_id)
        return token is not None and self.may_speak(machine, token)

    def offers(self, environment: ComputeEnvironment) -> Iterator[Offer]:
        """One offer for each machine that is ready and that an environment means."""
        for member in self.members.values():
            machine = member.machine
            if (
                machine is not None
                and member.standing is Standing.READY
                and machine_labels.chooses(environment, member.labels)
            ):
                type_ = member.labels.get(machine_labels.TYPE, member.name)
                yield Offer(type_, machine.total, 1, machine.id, lacks=machine.lacks)

    def strangers(self, machine: MachineId, tokens: Iterable[str]) -> set[str]:
        """The attempts among these that this machine has no say in: superseded ones, or another machine's."""
        return {token for token in tokens if not self.may_speak(machine, token)}


def answer_to_stranger(message: messages.ToDaemon) -> messages.Message | None:
    """What to tell an agent that speaks of an attempt which is not its own (any more): to stop and forget it.

    Nothing that such an attempt has left may be stored, and nobody wants its log.
    """
    if isinstance(message, LogPiece):
        return LogHave(message.task_id, message.kind, message.size)
    token = getattr(message, "token", None)
    if token is None:
        return None
    if isinstance(message, messages.Result):
        return messages.Forget([token])
    return messages.Stop(token, 0, lose=True)


def notices_of(member: Member, instances: Iterable[InstanceId]) -> list[Report]:
    """What the instances of a machine are told about its end: when it is, or that it may be soon."""
    words = member.notice.words or f"{member.name} is being drained"
    return to_notices(messages.Noticed(member.goes_at, words, member.notice.rebalance), instances)


def described(member: Member, machine: Machine, engine: str) -> Machine:
    """A machine with what only this side knows of it. Its id cannot be that of another engine's machine."""
    return replace(
        machine,
        id=MachineId(f"{engine}-{machine.id}"),
        facts=facts_of(member, machine, engine),
        closed=member.closed,
    )


def facts_of(member: Member, machine: Machine, engine: str) -> Mapping[str, str]:
    """The facts of a machine, with the engine, the name and the labels under which it was added."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(member.labels.items()))
    return {**machine.facts, ENGINE_FACT: engine, NAME_FACT: member.name, LABELS_FACT: labels}
