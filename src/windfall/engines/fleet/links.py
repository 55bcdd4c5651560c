"""The lines to many agents: one link each, run together, begun and let go one by one.

Decides nothing about machines: it keeps the tasks. A link that fails for good (another daemon leads) ends all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from windfall.agent.reach import Reach
from windfall.engines.agent_link import AgentLink

#: How often machines are looked at.
LOOK_S = 1.0
#: For agents that are told to end.
_END_WITHIN_S = 15.0


@dataclass(slots=True)
class MachineLink:
    """The line to one machine's agent."""

    reach: Reach
    link: AgentLink
    task: asyncio.Task[None] | None = None
    #: Whether its silence was logged.
    is_silence_logged: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing is done about it (any more)."""
        return self.task is None or self.task.done()


class MachineLinks:
    """All lines of an engine, by the names of their machines."""

    def __init__(self) -> None:
        self._lines: dict[str, MachineLink] = {}
        self._is_running = self._is_closing = False
        self._ended: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[tuple[str, MachineLink]]:
        return iter(list(self._lines.items()))

    def __getitem__(self, name: str) -> MachineLink:
        return self._lines[name]

    def find(self, name: str) -> MachineLink | None:
        """The line of a name; None if there is none."""
        return self._lines.get(name)

    def begin(self, name: str, line: MachineLink) -> None:
        """Have a line from now on, in place of an earlier one of its name."""
        self.drop(name)
        self._lines[name] = line
        line.link.whose = f"the agent of {name}"
        line.link.wanted.set()
        if self._is_running:
            self._run_line(name, line)
        self._wake.set()

    def drop(self, name: str) -> None:
        """Let a line go, if there is one."""
        if (line := self._lines.pop(name, None)) is not None:
            self._let_go(line)

    def away(self, names: Iterable[str]) -> str | None:
        """Which agents of these have not answered, and why the first has not, for people; None if all have."""
        away = [text for name in names if (text := self._lines[name].link.away) is not None]
        if len(away) < 2:
            return away[0] if away else None
        return f"{away[0]} (and {len(away) - 1} more of {len(self._lines)} machines)"

    def provide(self) -> None:
        """Send all agents what has changed of what they are provided with."""
        for _, line in self:
            line.link.provide()

    def wake(self) -> None:
        """Look at the machines now."""
        self._wake.set()

    def _run_line(self, name: str, line: MachineLink) -> None:
        line.task = asyncio.create_task(line.link.run(), name=f"link to {name}")
        line.task.add_done_callback(self._on_ended)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._ended.append(task)
        self._wake.set()

    def _let_go(self, line: MachineLink) -> None:
        line.link.let_go()
        if line.task is not None:
            line.task.remove_done_callback(self._on_ended)
            line.task.cancel()

    async def run(self, look: Callable[[], bool]) -> None:
        """Run all links until told to close; `look` is called now and then, and says whether there is more to wait for.

        Raises what a link ends with.
        """
        self._is_running = True
        for name, line in self:
            self._run_line(name, line)
        try:
            while not (self._is_closing and all(line.has_ended for _, line in self)):
                self._wake.clear()
                for task in self._ended:
                    if not task.cancelled():
                        task.result()
                self._ended.clear()
                waits = look() or self._lines
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S if waits else None):
                        await self._wake.wait()
        finally:
            self._is_running = False
            tasks = [line.task for _, line in self if line.task is not None]
            for _, line in self:
                self._let_go(line)
            await asyncio.gather(*tasks, return_exceptions=True)

    async def shut_down(self, *, kill: bool) -> None:
        """End all agents, with their attempts if `kill`."""
        self._is_closing = True
        await end([line for _, line in self], kill=kill)
        self._wake.set()

    def let_go(self) -> None:
        """Leave all agents to themselves."""
        self._is_closing = True
        for _, line in self:
            line.link.let_go()
        self._wake.set()


async def end(lines: Iterable[MachineLink], *, kill: bool) -> None:
    """Tell agents to end; one that takes no more words is not waited for."""
    goodbyes = [asyncio.create_task(line.link.shut_down(kill=kill)) for line in lines]
    if goodbyes:
        _, late = await asyncio.wait(goodbyes, timeout=_END_WITHIN_S)
        for task in late:
            task.cancel()
