"""The launcher of attempts that are containers: what their keepers say, and what is done when a keeper dies.

A keeper's files are the truth about its container; a message only says that they have changed. Decides when an
attempt counts as started, how it ended, and when another keeper is started. Must not know the engine or the socket.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from windfall.agent.attempt import Attempt
from windfall.agent.container.engine import Engine
from windfall.agent.container.errors import EngineError
from windfall.agent.container.notebook import ORDERS, PIPES, SECRETS
from windfall.agent.container.orders import (
    DIRECTORY_NAME,
    Orders,
    container_name,
    keeper_directory,
    keeper_launch,
    read_state,
    short_name,
    write_orders,
)
from windfall.agent.container.request import AGENT_LABEL, TOKEN_LABEL
from windfall.agent.container.state import KeeperState
from windfall.agent.errors import CannotEnter
from windfall.agent.events import Began, Failed
from windfall.agent.launchers import Leave, React
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited, Lost, Message, Progressed
from windfall.agent.processes import ProcessStat, members, send
from windfall.agent.spawner import Launch
from windfall.agent.speech import say

#: How many keepers of one attempt may die one after the other without any progress.
_MOST_DEATHS = 5
#: An engine that does not answer must not keep jobs from their GPUs for ever.
_TIDY_WITHIN_S = 20.0


class ContainerLauncher:
    """Attempts that are containers, each with a process that keeps it."""

    keeps_limits = has_foreign_files = True

    def __init__(
        self,
        machine: Machine,
        attempts: Mapping[str, Attempt],
        tell: Callable[[Message], None],
        start_again: Callable[[Attempt], None],
        react: React,
        leave: Leave,
    ) -> None:
        self._machine = machine
        self._attempts = attempts
        self._tell = tell
        self._start_again = start_again
        self._react = react
        self._leave = leave
        #: Keepers that died, by token, and how far things were at the last death.
        self._deaths: dict[str, tuple[int, KeeperState]] = {}
        #: What removes the containers that an earlier agent left, and until when that is waited for.
        self._tidying: tuple[threading.Thread, float] | None = None

    # --- keepers -------------------------------------------------------------------------------------

    def is_ready(self, _attempt: Attempt) -> bool:
        """Wait until no container of an earlier agent is left, which may be an earlier attempt of the same job."""
        return not self.tidying

    def launch(self, attempt: Attempt) -> Launch:
        """Return the keeper to start; raises CannotStart."""
        if attempt.story.order is not None:
            write_orders(attempt, attempt.story.order, self._machine)
        return keeper_launch(attempt.intended, self._machine)

    def not_launched(self, attempt: Attempt, reason: str, at: int) -> None:
        """No keeper could be started; a container that is there already may still be kept by another try."""
        if self._read(attempt).container:
            self.lost(attempt, at)
        else:
            self._react(Failed(attempt.token, reason, at))

    def spawned(self, attempt: Attempt) -> None:
        """A keeper is there, perhaps not the first one."""
        attempt.terminated = False
        self.look(attempt)

    def adopted(self, attempt: Attempt) -> None:
        """Learn what its keeper has written meanwhile."""
        self.look(attempt)

    def exited(self, attempt: Attempt, _code: int, at: int) -> None:
        """A keeper's own exit code says nothing."""
        self.lost(attempt, at)

    def lost(self, attempt: Attempt, at: int) -> None:
        """Report how the container ended; where nobody knows yet, have another keeper look after it."""
        state = self.look(attempt)
        if state.ended_at is not None:
            self._deaths.pop(attempt.token, None)
            self._report_end(attempt, state, state.ended_at)
            return
        number, before = self._deaths.get(attempt.token, (0, KeeperState()))
        number = number + 1 if state.without_keeper() == before else 1
        self._deaths[attempt.token] = number, state.without_keeper()
        if number > _MOST_DEATHS or not os.path.isdir(keeper_directory(self._machine, attempt.token)):
            say(f"{attempt.token}: given up after {number} keepers; see keeper.log")
            self.remove_leftovers([attempt.token])
            self._leave(attempt, Lost(attempt.token, at))
            return
        say(f"{attempt.token}: its keeper is gone, its container may not be: starting another")
        self._start_again(attempt)

    def on_news(self, token: str) -> None:
        """Learn what a keeper says that it has written down."""
        attempt = self._attempts.get(token)
        if attempt is not None and attempt.running and attempt.launcher is self:
            self.look(attempt)

    def look_at_all(self) -> None:
        """Learn what keepers have written down while they could tell nobody."""
        for token in list(self._attempts):
            self.on_news(token)

    def look(self, attempt: Attempt) -> KeeperState:
        """Learn what a keeper has written, and pass it on."""
        state, known = self._read(attempt), attempt.container
        attempt.container = state
        attempt.container_pid = state.pid if state.ended_at is None else None
        if state.started_at is not None:
            if known is None or known.started_at is None:
                self._react(Began(attempt.token, state.started_at, state.pid))
                if known is None or known.doing is not None:
                    self._tell(Progressed(attempt.token, _now_ms()))
        elif state.doing is not None and (known is None or known.doing != state.doing):
            self._tell(Progressed(attempt.token, _now_ms(), doing=state.doing))
        return state

    def news(self, attempts: list[Attempt]) -> list[Message]:
        """Return what containers that do not run yet are waiting for, for a daemon that has just come."""
        return [
            Progressed(attempt.token, _now_ms(), doing=attempt.container.doing)
            for attempt in attempts
            if attempt.container is not None and attempt.container.doing is not None and attempt.live
        ]

    def _report_end(self, attempt: Attempt, state: KeeperState, at: int) -> None:
        if state.started_at is None:
            self._react(Failed(attempt.token, state.failure or "", at))
            return
        reason = state.reason or state.failure
        isolation = attempt.story.isolation
        exited = Exited(attempt.token, state.exit_code, reason, state.started_at, at, isolation)
        self._leave(attempt, exited)

    def _read(self, attempt: Attempt) -> KeeperState:
        return read_state(self._machine, attempt.token)

    # --- signals and sessions ------------------------------------------------------------------------

    def signal_all(
        self, attempt: Attempt, number: signal.Signals, _processes: Mapping[int, ProcessStat]
    ) -> int:
        """Have its keeper stop or kill it.

        A keeper that has not yet written a line has no handlers either: a signal would end it and not the container.
        """
        if attempt.container is None or attempt.container.keeper != attempt.pid:
            return 0
        return tell_keeper(attempt.pid, number)

    def signal_process(self, attempt: Attempt, pid: int, number: signal.Signals) -> None:
        """Signal a process inside; the first one is perhaps not ours to signal, and its engine may."""
        if not send(pid, number) and pid == attempt.container_pid:
            self.signal_all(attempt, number, {})

    def targets(
        self,
        attempt: Attempt,
        processes: Mapping[int, ProcessStat],
        *,
        spare_monitor: bool,  # noqa: ARG002 - a container has none inside
    ) -> set[int]:
        """Return the processes inside."""
        return inside_of(attempt, processes)

    def entrance(self, attempt: Attempt) -> dict[str, str] | None:
        """Lead in by the engine; raises CannotEnter."""
        try:
            with open(f"{keeper_directory(self._machine, attempt.token)}/{ORDERS}", "rb") as file:
                orders = msgspec.json.decode(file.read(), type=Orders)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CannotEnter(f"its container is not known here: {error}") from None
        name = container_name(self._machine.settings.agent_id, attempt.token)
        return {"socket": orders.socket, "api": orders.api, "name": name}

    def release(self, attempt: Attempt) -> None:
        """Its keeper has removed it."""

    # --- tidying -------------------------------------------------------------------------------------

    def forget(self, token: str) -> None:
        """Remove a keeper's files."""
        self._deaths.pop(token, None)
        _remove(keeper_directory(self._machine, token))

    def tidy(self, known: list[Attempt]) -> None:
        """Remove the files and containers that an earlier agent left and no attempt needs."""
        # A warm worker of an agent that died ends with the child that it has.
        workers = {
            attempt.story.hosted.container
            for attempt in known
            if attempt.story.hosted is not None and attempt.live
        }
        tokens = {attempt.token for attempt in known} | workers
        parent = os.path.join(self._machine.settings.directory, DIRECTORY_NAME)
        kept = {short_name(token) for token in tokens}
        for name in os.listdir(parent) if os.path.isdir(parent) else []:
            if name not in kept:
                _remove(os.path.join(parent, name))
        live = {attempt.token for attempt in known if attempt.live} | workers
        if self._machine.engine is not None and self._machine.engine.facts is not None:
            thread = threading.Thread(
                target=self._remove_unknown, args=(live,), name="leftovers", daemon=True
            )
            self._tidying = thread, time.monotonic() + _TIDY_WITHIN_S
            thread.start()

    @property
    def tidying(self) -> bool:
        """Whether containers of an earlier agent are being removed."""
        if self._tidying is None:
            return False
        thread, until = self._tidying
        if not thread.is_alive() or time.monotonic() >= until:
            self._tidying = None
        return self._tidying is not None

    def remove_leftovers(self, tokens: list[str]) -> None:
        """Remove the containers of these attempts, in a thread of its own: an engine may take its time."""
        names = [container_name(self._machine.settings.agent_id, token) for token in tokens]
        threading.Thread(target=self._remove, args=(names,), name="leftovers", daemon=True).start()

    def _remove_unknown(self, live: set[str]) -> None:
        engine = self._engine()
        if engine is None:
            return
        try:
            found = engine.containers(f"{AGENT_LABEL}={self._machine.settings.agent_id}")
        except EngineError as error:
            say(f"containers of an earlier agent cannot be looked for: {error}")
            return
        unknown = [one for one in found if (one.get("Labels") or {}).get(TOKEN_LABEL) not in live]
        self._remove([str(one.get("Id")) for one in unknown])

    def _remove(self, names: list[str]) -> None:
        engine = self._engine()
        for name in names if engine is not None else []:
            assert engine is not None
            try:
                engine.remove(name)
            except EngineError as error:
                say(f"container {name} cannot be removed: {error}")
            else:
                say(f"removed container {name}: no attempt needs it")

    def _engine(self) -> Engine | None:
        facts = self._machine.engine.facts if self._machine.engine is not None else None
        return Engine(facts.socket, facts.api) if facts is not None else None


def tell_keeper(pid: int, number: signal.Signals) -> int:
    """Have a keeper stop or kill its container; whether it could be told."""
    return int(send(pid, signal.SIGUSR1 if number == signal.SIGKILL else number))


def inside_of(attempt: Attempt, processes: Mapping[int, ProcessStat]) -> set[int]:
    """Return the processes of an attempt's container."""
    first = attempt.container_pid or 0
    return {stat.pid for stat in members(processes, {first}).get(first, [])}


def _remove(directory: str) -> None:
    """Remove a keeper's directory: a few small files, and copies of secrets if it was killed."""
    within = (SECRETS, PIPES)
    for path in (*(os.path.join(directory, name) for name in within), directory):
        try:
            for name in os.listdir(path):
                if name not in within or path != directory:
                    os.unlink(os.path.join(path, name))
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            say(f"{path} cannot be removed: {error}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
