"""AddHost, ListHosts, DrainHost, RemoveHost and CheckHost: the operations behind `windfall hosts`.

Decides the order of steps: a host is listed only when an agent serves there, and forgotten only when that agent has
ended. Nothing that was refused leaves a trace in the store. Must not know ssh's options.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from windfall.agent.errors import AgentError
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.capacity.hosts import Host
from windfall.capacity.labels import check_labels
from windfall.capacity.machines import Machine
from windfall.control.commands.hosts import AddHost, DrainHost, HostCommand, RemoveHost
from windfall.control.state import State
from windfall.daemon.gateway import Gateway
from windfall.daemon.host_keeper import HostKeeper
from windfall.daemon.request_fields import needed_text, optional_text, text_map
from windfall.engines.fleet.machines import Member
from windfall.engines.hosts.destinations import (
    HOST_NAME,
    BadDestination,
    check_directory,
    check_python,
    name_of,
    parse_destination,
)
from windfall.engines.hosts.host_side import boot_id
from windfall.engines.hosts.reach import Checkup, HostCalls, Look, SshReach
from windfall.engines.hosts.ssh import Ssh
from windfall.jobs.errors import Conflict, NotFound, Rejected
from windfall.jobs.ids import MachineId

#: How long a host that was listed is waited for until the answer says that it has not described itself yet.
_DESCRIBED_WITHIN_S = 20.0
#: How long an agent that was told to end may take until its files are left there.
_ENDED_WITHIN_S = 20.0
_LOOK_AGAIN_S = 0.2
_GPUS = ("auto", "none")


class Hosts:
    """The operations, over the control loop and the keeper of the daemon that leads."""

    def __init__(
        self,
        loop: Gateway,
        keeper: Callable[[], HostKeeper | None],
        ssh: Ssh,
        daemon_id: str,
        clock_ms: Callable[[], int],
    ) -> None:
        self._loop, self._keeper, self._ssh = loop, keeper, ssh
        self._daemon_id, self._clock_ms = daemon_id, clock_ms
        #: What is being done to hosts that are not listed yet, by their names, for people.
        self._adding: dict[str, str] = {}

    async def add(self, call: Call) -> dict[str, Any]:
        """Install Windfall on a host, start its agent, run the doctor there, and list the host."""
        keeper = await self._leading()
        try:
            destination = parse_destination(needed_text(call, "destination"))
            python, base = optional_text(call, "python"), optional_text(call, "directory")
            calls = HostCalls(
                self._ssh,
                destination,
                None if python is None else check_python(python),
                None if base is None else check_directory(base),
            )
            labels = check_labels(text_map(call, "labels").items())
        except (BadDestination, Rejected) as error:
            raise ApiError("Invalid", str(error)) from None
        address = _address(call)
        name = optional_text(call, "name") or name_of(destination)
        if not HOST_NAME.fullmatch(name):
            raise ApiError("Invalid", f"{name[:100]!r} cannot name a host; use letters, digits and . _ -")
        with self._progress(name) as say:
            try:
                say("connects")
                seen = await calls.look()
                _refuse_own_machine(name, seen)
                host = Host(
                    name=name,
                    destination=destination.text,
                    python=seen.python,
                    base=seen.base,
                    root=f"{seen.base}/agents/{self._daemon_id}/{name}",
                    labels=labels,
                    address=address,
                    gpus=_gpus(call),
                    added_at=self._clock_ms(),
                )
                reach = keeper.make_reach(host)
                reach.progress = say
                await reach.bring_up()
                say("runs the doctor")
                checkup = await reach.check_up()
            except AgentError as error:
                raise ApiError("Unreachable", str(error), 409) from None
            added: Host = await self._execute(AddHost(host))
            member = await self._described(keeper, name)
        said = {"hostname": seen.hostname, "python": ".".join(map(str, seen.version)), **_checkup(checkup)}
        return {**await self._shown(keeper, added, member), **said}

    async def list(self, _: Call) -> dict[str, Any]:
        """All hosts, and those that are being added."""
        keeper = await self._leading()
        listed: list[Host] = await self._loop.inspect(lambda state, *_: list(state.hosts.values()))
        shown = [await self._shown(keeper, host, keeper.member(host.name)) for host in listed]
        return {
            "hosts": sorted(shown, key=lambda host: str(host["name"])),
            "adding": dict(self._adding),
        }

    async def drain(self, call: Call) -> dict[str, Any]:
        """Place nothing new on a host; with `resume` place jobs there again."""
        keeper = await self._leading()
        command = DrainHost(needed_text(call, "name"), call.params.get("resume") is not True)
        host: Host = await self._execute(command)
        return await self._shown(keeper, host, keeper.member(host.name))

    async def check(self, call: Call) -> dict[str, Any]:
        """Run the doctor of a host."""
        keeper = await self._leading()
        host = await self._listed(needed_text(call, "name"))
        try:
            return {"name": host.name, **_checkup(await keeper.make_reach(host).check_up())}
        except AgentError as error:
            raise ApiError("Unreachable", str(error), 409) from None

    async def remove(self, call: Call) -> dict[str, Any]:
        """End a host's agent, remove what it left there, and forget the host; refused while jobs run there."""
        keeper = await self._leading()
        force = call.params.get("force") is True
        host = await self._listed(needed_text(call, "name"))
        await self._refuse_while_busy(keeper, host, force=force)
        await self._execute(DrainHost(host.name))
        try:
            await self._refuse_while_busy(keeper, host, force=force)
        except ApiError:
            if not host.draining:
                await self._execute(DrainHost(host.name, draining=False))
            raise
        if not force and (trouble := keeper.trouble_of(host.name)) is not None:
            raise ApiError(
                "Unreachable",
                f"{host.name} cannot be cleaned up: {trouble}. It is drained; remove it when it answers, or use --force"
                " to forget it with what is left there",
                409,
            )
        reach = keeper.make_reach(host)
        await keeper.end(host.name)
        left = await _cleaned(reach, force=force)
        await self._execute(RemoveHost(host.name))
        return {"name": host.name, "left": left}

    async def _leading(self) -> HostKeeper:
        """The keeper; a follower's request goes to the leader because it cannot look at the state."""
        await self._loop.inspect(lambda *_: None)
        keeper = self._keeper()
        if keeper is None:
            raise ApiError("Unavailable", "this daemon does not lead any more; try again", 503)
        return keeper

    async def _listed(self, name: str) -> Host:
        host: Host | None = await self._loop.inspect(lambda state, *_: state.hosts.get(name))
        if host is None:
            text = f"{name[:100]!r} is not a host of this daemon; `windfall hosts list` shows them"
            raise ApiError("NotFound", text, 404)
        return host

    async def _execute(self, command: HostCommand) -> Any:
        try:
            return await self._loop.execute(command)
        except NotFound as refusal:
            raise ApiError("NotFound", str(refusal), 404) from None
        except Conflict as refusal:
            raise ApiError("Conflict", str(refusal), 409) from None
        except Rejected as refusal:
            raise ApiError("Invalid", str(refusal)) from None

    async def _refuse_while_busy(self, keeper: HostKeeper, host: Host, *, force: bool) -> None:
        running = await self._running(keeper.member(host.name))
        if running and not force:
            jobs = "1 job runs" if running == 1 else f"{running} jobs run"
            text = (
                f"{jobs} on {host.name}: `windfall hosts remove {host.name} --drain` waits for them, and --force stops"
                " them; then they go on elsewhere from their last checkpoint"
            )
            raise ApiError("Conflict", text, 409)

    async def _running(self, member: Member | None) -> int:
        if member is None or member.machine is None:
            return 0
        machine = member.machine.id
        running: int = await self._loop.inspect(lambda state, *_: _attempts_on(state, machine))
        return running

    async def _described(self, keeper: HostKeeper, name: str) -> Member | None:
        """How a host stands that was listed a moment ago, once its agent has described it."""
        for _ in range(int(_DESCRIBED_WITHIN_S / _LOOK_AGAIN_S)):
            member = keeper.member(name)
            if member is not None and member.machine is not None:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        return keeper.member(name)

    async def _shown(self, keeper: HostKeeper, host: Host, member: Member | None) -> dict[str, Any]:
        machine = None if member is None else member.machine
        return {
            "name": host.name,
            "destination": host.destination,
            "labels": dict(host.labels),
            "address": host.address,
            "draining": host.draining,
            "root": host.root,
            "python": host.python,
            "addedAt": host.added_at,
            "standing": "added" if member is None or machine is None else member.standing.name.lower(),
            "trouble": keeper.trouble_of(host.name) or (None if member is None else member.closed),
            "running": await self._running(member),
            "machine": None if machine is None else _machine(machine),
        }

    @contextmanager
    def _progress(self, name: str) -> Iterator[Callable[[str], None]]:
        if name in self._adding:
            raise ApiError("Conflict", f"{name} is being added already; wait for it", 409)

        def say(text: str) -> None:
            self._adding[name] = text

        say("is asked for")
        try:
            yield say
        finally:
            del self._adding[name]


def _refuse_own_machine(name: str, seen: Look) -> None:
    """A host that runs the daemon's own kernel is the daemon's machine, perhaps in a container."""
    if seen.boot_id and seen.boot_id == boot_id():
        text = (
            f"{name} is the daemon's own machine, which runs jobs without being listed; as a host too, its CPUs,"
            " memory and GPUs would count twice"
        )
        raise ApiError("Conflict", text, 409)


def _address(call: Call) -> str | None:
    address = optional_text(call, "address")
    try:
        return None if address is None else str(ipaddress.ip_address(address))
    except ValueError:
        text = (
            f"address must be an IP address by which other hosts reach this one, not {str(address)[:100]!r}."
        )
        raise ApiError("Invalid", text) from None


def _gpus(call: Call) -> str:
    text = optional_text(call, "gpus") or "auto"
    kind, _, count = text.partition(":")
    if text in _GPUS or (
        kind == "simulated" and count.isascii() and count.isdigit() and 0 < int(count) <= 64
    ):
        return text
    raise ApiError("Invalid", f"gpus must be auto, none or simulated:N, not {text[:50]!r}.")


def _attempts_on(state: State, machine: MachineId) -> int:
    instances = {instance.id for instance in state.instances.values() if instance.machine == machine}
    attempts = (job.attempt for job in state.attempts.values())
    return sum(attempt is not None and attempt.instance in instances for attempt in attempts)


async def _cleaned(reach: SshReach, *, force: bool) -> str:
    """Remove what an agent left on its host; returns why something is still there, empty if nothing is."""
    text = "its agent still runs"
    for _ in range(int(_ENDED_WITHIN_S / _LOOK_AGAIN_S)):
        try:
            text = (await reach.remove(force=force)).kept
        except AgentError as error:
            return str(error)
        if text != "its agent still runs":
            break
        await asyncio.sleep(_LOOK_AGAIN_S)
    return text


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "id": machine.id,
        "vcpus": machine.total.vcpus,
        "memoryMib": machine.total.memory_mib,
        "gpus": [gpu.name for gpu in machine.gpus],
        "hostname": machine.facts.get("hostname", ""),
        "networkMbits": machine.facts.get("network_mbits") or None,
        "jobUser": machine.facts.get("job_user", ""),
    }


def _checkup(checkup: Checkup) -> dict[str, Any]:
    return {
        "healthy": not any(verdict.state == "bad" for verdict in checkup.checks),
        "checks": [
            {"subject": check.subject, "state": check.state, "seen": check.seen, "mend": check.mend}
            for check in checkup.checks
        ],
        "gpus": [{"name": gpu.name, "memoryMib": gpu.memory_mib} for gpu in checkup.gpus],
        "networkMbits": checkup.network_mbits,
    }
