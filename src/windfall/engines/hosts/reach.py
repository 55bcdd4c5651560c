"""Reaches the agent of a host by ssh: brings one of our version there, starts it, and opens streams to it.

Nothing listens on a host but sshd. What is asked there is a program of the standard library that travels with the
request (host_side.py), so that a bare host needs only Python. Decides the order of these requests and what an answer
means; answers are checked, because a host may say anything. Must not know instances.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import msgspec

from windfall.agent import relay
from windfall.agent.checkup.verdicts import Verdict
from windfall.agent.client import one_line
from windfall.agent.errors import AgentUnfit, AgentUnreachable
from windfall.agent.reach import Stream
from windfall.agent.settings import AgentSettings
from windfall.engines.hosts import host_side
from windfall.engines.hosts.bundle import Bundle, Platform, bundle_for
from windfall.engines.hosts.destinations import SshDestination, check_directory, check_python
from windfall.engines.hosts.ssh import quoted

#: Which Pythons a host is asked for, in this order.
_PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "/usr/bin/python3")
_NO_PYTHON = "windfall: no Python"
#: For the login shell of a host: finds a Python that is new enough and lets it run what follows on its input.
_FIND = (
    'for p in "$@"; do if "$p" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then'
    ' exec "$p" -I -c "import sys; exec(sys.stdin.buffer.read({size}))"; fi; done;'
    f' echo "{_NO_PYTHON}" >&2; exit 90'
)
_LOOK_WITHIN_S = 60.0
_BRING_UP_WITHIN_S = 90.0
_INSTALL_WITHIN_S = 900.0

T = TypeVar("T")
#: Told what is being done, for people.
Progress = Callable[[str], None]


class Look(msgspec.Struct, frozen=True):
    """What a host says of itself."""

    base: str
    uid: int
    python: str
    version: tuple[int, int, int]
    tag: str
    machine: str
    libc: str
    hostname: str
    vcpus: int
    memory_mib: int
    free_bytes: int
    client: str = ""
    address: str = ""
    boot_id: str = ""


class GpuSeen(msgspec.Struct, frozen=True):
    """A GPU that the doctor of a host saw."""

    name: str
    memory_mib: int


class Checkup(msgspec.Struct, frozen=True):
    """What the doctor of a host says."""

    checks: list[Verdict]
    gpus: list[GpuSeen]
    network_mbits: int | None = None


class _BroughtUp(msgspec.Struct, frozen=True):
    digest: str = ""
    damaged: str = ""
    unfit: str = ""


class _Site(msgspec.Struct, frozen=True):
    site: str


class Removal(msgspec.Struct, frozen=True):
    """What became of the files of a host; `kept` says why they are still there."""

    kept: str


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Where a host is, and where on it things are; known once it was looked at."""

    destination: SshDestination
    #: The Python that everything runs with, and the directory of everything.
    python: str
    base: str
    #: The agent's own directory.
    root: str


class HostShell(Protocol):
    """What runs a shell command on a host: ssh, or the door of a Ray node. Both raise AgentUnreachable."""

    async def ask(
        self, destination: SshDestination, remote: str, parts: Iterable[bytes], within_s: float
    ) -> bytes:
        """Run a command with these parts as its input and return what it prints."""

    async def stream(self, destination: SshDestination, remote: str, greeting: bytes) -> Stream:
        """Open a stream to a command that first prints a line, the greeting."""


class HostCalls:
    """Requests to one host, each over ssh by the program that goes with it."""

    def __init__(
        self, ssh: HostShell, destination: SshDestination, python: str | None = None, base: str | None = None
    ) -> None:
        self._ssh, self._destination = ssh, destination
        self._pythons = _PYTHONS if python is None else (check_python(python),)
        self._base = None if base is None else check_directory(base)

    async def look(self) -> Look:
        """What the host is; raises AgentUnreachable."""
        seen = await self._ask("look", Look, _LOOK_WITHIN_S, base=self._base)
        try:
            check_python(seen.python)
            check_directory(seen.base)
        except ValueError as error:
            raise AgentUnreachable(f"{self._destination.text}: {error}") from None
        return seen

    async def install(self, bundle: Bundle, base: str, progress: Progress) -> None:
        """Make sure that a sound installation is there."""
        archive = await asyncio.to_thread(bundle.archive)
        how = "; its pip gets the rest" if bundle.requirements else ""
        progress(f"installs Windfall ({len(archive) / 1e6:.0f} MB{how})")
        await self._ask(
            "install",
            _Site,
            _INSTALL_WITHIN_S,
            archive,
            base=base,
            name=bundle.name,
            size=len(archive),
            sha256=hashlib.sha256(archive).hexdigest(),
            requirements=list(bundle.requirements),
        )

    async def bring_up(self, bundle: Bundle, place: HostPlace, settings: AgentSettings) -> str:
        """Make sure that an agent serves; returns why the installation must be made anew, empty if all is well."""
        answer = await self._ask(
            "bring_up",
            _BroughtUp,
            _BRING_UP_WITHIN_S,
            base=place.base,
            name=bundle.name,
            root=place.root,
            settings=msgspec.to_builtins(settings),
            directories=[place.root, *_closed(place.root)],
        )
        if answer.unfit:
            raise AgentUnfit(f"{self._destination.text}: {one_line(answer.unfit)}")
        return answer.damaged

    async def check_up(self, bundle: Bundle, base: str, settings: AgentSettings) -> Checkup:
        """Run the doctor there."""
        own = msgspec.to_builtins(settings)
        return await self._ask(
            "check_up", Checkup, _BRING_UP_WITHIN_S, base=base, name=bundle.name, settings=own
        )

    async def remove(self, place: HostPlace, *, force: bool) -> Removal:
        """Remove what an agent that has ended has left there."""
        return await self._ask(
            "remove", Removal, _LOOK_WITHIN_S, base=place.base, root=place.root, force=force
        )

    async def _ask(
        self, request: str, answer: type[T], within_s: float, payload: bytes = b"", **fields: Any
    ) -> T:
        program = _program()
        mark = f"windfall-answer-{secrets.token_hex(8)}"
        line = json.dumps({"request": request, "mark": mark, **fields}).encode() + b"\n"
        remote = quoted(["sh", "-c", _FIND.format(size=len(program)), "sh", *self._pythons])
        try:
            said = await self._ssh.ask(self._destination, remote, (program, line, payload), within_s)
        except AgentUnreachable as error:
            if _NO_PYTHON in str(error):
                raise AgentUnreachable(self._no_python()) from None
            raise
        return self._read(said, mark, answer)

    def _read(self, said: bytes, mark: str, answer: type[T]) -> T:
        prefix = f"{mark} ".encode()
        line = next((line for line in reversed(said.split(b"\n")) if line.startswith(prefix)), None)
        if line is None:
            raise AgentUnreachable(
                f"{self._destination.text} ran the request and did not answer it: does its login shell end early?"
            )
        try:
            read = msgspec.json.decode(line.removeprefix(prefix))
        except msgspec.MsgspecError:
            read = None
        if isinstance(read, dict) and isinstance(refused := read.get("refused"), str):
            raise AgentUnreachable(f"{self._destination.text}: {one_line(refused)}")
        try:
            return msgspec.convert(read, answer)
        except msgspec.ValidationError as error:
            raise AgentUnreachable(f"{self._destination.text} answers what makes no sense: {error}") from None

    def _no_python(self) -> str:
        return (
            f"{self._destination.text} has no Python 3.11 or later ({', '.join(self._pythons)}): install one (Debian:"
            " apt install python3), or name it with --python"
        )


class SshReach:
    """An agent on a host that the user listed."""

    def __init__(
        self, ssh: HostShell, place: HostPlace, settings: AgentSettings, progress: Progress = lambda _: None
    ) -> None:
        self._ssh, self._place, self._settings = ssh, place, settings
        #: Told what is being done there, for people.
        self.progress = progress
        self._calls = HostCalls(ssh, place.destination, place.python, place.base)
        self._bundle: Bundle | None = None

    @property
    def place(self) -> str:
        """The agent's directory, with the host's name."""
        return f"{self._place.destination.text}:{self._settings.directory}"

    @property
    def digest(self) -> str:
        """The digest of its settings."""
        return self._settings.digest

    async def bring_up(self) -> None:
        """Make sure that an agent serves there, installing what it needs."""
        bundle = await self._wanted()
        self.progress("looks for its agent")
        damage = await self._calls.bring_up(bundle, self._place, self._settings)
        if damage:
            # Looked at again: another Python may have been installed there since.
            bundle = await self._wanted(again=True)
            await self._calls.install(bundle, self._place.base, self.progress)
            self.progress("starts the agent")
            damage = await self._calls.bring_up(bundle, self._place, self._settings)
        if damage:
            raise AgentUnreachable(f"{self.place}: {one_line(damage)}")

    async def check_up(self) -> Checkup:
        """What the doctor of the host says, of the installation that `bring_up` uses."""
        return await self._calls.check_up(await self._wanted(), self._place.base, self._settings)

    async def remove(self, *, force: bool) -> Removal:
        """Remove what the agent, which has ended, has left there."""
        return await self._calls.remove(self._place, force=force)

    async def dial(self) -> Stream:
        """A stream to the agent's socket, through a process beside it."""
        bundle = await self._wanted()
        script = os.path.join(self._place.base, bundle.name, "windfall", "agent", "relay.py")
        command = quoted([self._place.python, "-I", "-S", script, self._settings.directory])
        return await self._ssh.stream(self._place.destination, f"exec {command}", relay.GREETING)

    async def _wanted(self, *, again: bool = False) -> Bundle:
        if self._bundle is None or again:
            seen = await self._calls.look()
            platform = Platform(seen.tag, seen.machine, seen.libc)
            self._bundle = await asyncio.to_thread(bundle_for, platform)
        return self._bundle


@cache
def _program() -> bytes:
    with open(host_side.__file__, "rb") as file:
        return file.read()


def agent_settings(root: str, wanted: AgentSettings) -> AgentSettings:
    """The settings of an agent on another machine: what is wanted of it, with paths of that machine."""
    logs = os.path.join(root, "logs")
    return msgspec.structs.replace(
        wanted,
        directory=os.path.join(root, "agent"),
        attempts_directory=os.path.join(root, "attempts"),
        hide=(root,),
        objects_file=os.path.join(root, "objects.json"),
        secrets_directory=os.path.join(root, "secrets"),
        machine_samples=os.path.join(logs, "machine.samples"),
        logs_directory=logs,
        provided=True,
        mirror=True,
    )


def _closed(root: str) -> list[str]:
    """The directories that nobody but the agent's user enters."""
    return [os.path.join(root, name) for name in ("logs", "secrets")]
