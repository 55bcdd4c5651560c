"""Takes over what an earlier agent left: attempts that still run are adopted, ends that were written down
are reported, what was never begun is begun anew, the rest is lost.

Where an exit code can come from, best first: the agent's own journal; the warden's file (the warden
became the parent when the agent died); the kernel itself through the process's pidfd (Linux 6.15 and
later, when even the warden died). What none of them knows is `Lost`, and only when no process of the
attempt runs any more. Must not know the socket.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import time
from collections.abc import Callable
from functools import partial

from windfall.agent.attempt import Attempt
from windfall.agent.errors import AgentError
from windfall.agent.events import Saved
from windfall.agent.exits import ExitsFile, OrphanExit, Trace, trace_of_starts
from windfall.agent.journal import Replay
from windfall.agent.messages import Lost
from windfall.agent.orphans import empty_groups, stop_strays
from windfall.agent.processes import (
    ProcessStat,
    attempt_token,
    find_by_token,
    members,
    read_stat,
    send,
    snapshot,
)
from windfall.agent.records import BegunAnew, Launching, Spawned
from windfall.agent.sandbox import BUBBLEWRAP
from windfall.agent.speech import say
from windfall.agent.stages import Fate, fate_of
from windfall.agent.supervisor import Supervisor, now_ms

#: How long it may take until a process that was being started shows its attempt.
_SHOWS_WITHIN_S = 2.0
#: How long the exit code of an adopted attempt may take to appear after its end.
_CODE_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.02
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO = struct.Struct("QQ11Ii")
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11
#: What an agent itself lacks, which says nothing of the process that it asks about.
_LACKING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def pidfd_of(pid: int) -> int:
    """A descriptor of a process, or -1 if there is none; raises OSError when that cannot be known."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _LACKING:
            raise
        # Not ESRCH alone: a number that a thread has now is EINVAL to older kernels and ENOENT to newer ones.
        return -1


def boot_id() -> str:
    """Return the name of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


class Recovery:
    """Adopted attempts until they have ended."""

    def __init__(
        self,
        supervisor: Supervisor,
        exits: ExitsFile,
        on_readable: Callable[[int, Callable[[], None] | None], None],
    ) -> None:
        self._supervisor = supervisor
        self._exits = exits
        self._agent_id = supervisor.machine.settings.agent_id
        self._on_readable = on_readable
        self._known_exits: dict[int, list[OrphanExit]] = {}
        self._running: dict[str, tuple[Attempt, int]] = {}
        self._departed: list[tuple[float, Attempt, int]] = []

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        return time.monotonic() + _LOOK_EVERY_S if self._departed else None

    def take_over(self, replay: Replay, this_boot: str) -> list[Attempt]:
        """Make every attempt of the journal one of these: ended, adopted, begun anew, or lost.

        Returns the adopted ones.
        """
        self._read_exits()
        unsure = {}
        adopted = []
        same_boot = replay.boot_id == this_boot
        for story in replay.stories.values():
            attempt = self._supervisor.keep(story)
            fate = fate_of(
                story, same_boot=same_boot, damaged=replay.damaged, boot_known=bool(replay.boot_id)
            )
            if fate is Fate.SAVED:
                self._supervisor.staged.take(attempt)
            elif fate is Fate.UNSURE:
                unsure[attempt.token] = attempt
            elif fate is Fate.LOST:
                self._supervisor.react(Saved(attempt.token, Lost(attempt.token, now_ms())))
            elif fate is Fate.BEGUN_ANEW:
                self._begin_anew(attempt)
            elif fate is Fate.ADOPTED:
                assert story.spawned is not None
                if self._adopt(attempt, story.spawned):
                    adopted.append(attempt)
        adopted += self._search(unsure)
        self._stop_strays(replay)
        return adopted

    def _begin_anew(self, attempt: Attempt) -> None:
        """Start an attempt that was never begun: from its record, or when the daemon asks for it again."""
        story, machine = attempt.story, self._supervisor.machine
        in_sandbox = story.intended.sandboxed and not story.intended.keeper
        # A sandbox that there was, and is none now: how it runs is decided again when it is sent again.
        if story.accepted is None or (in_sandbox and machine.tools is None):
            self._supervisor.disown(attempt)  # The daemon sees that it is not known here.
            return
        story.order = story.accepted
        story.add(BegunAnew())
        self._supervisor.staged.take(attempt)

    def _search(self, unsure: dict[str, Attempt]) -> list[Attempt]:
        """Adopt attempts whose start was begun and of which no pid is known, if a process of theirs is found."""
        for attempt in [one for one in unsure.values() if one.intended.keeper]:
            # If one keeper was started after all, a second waits for it and then says the same.
            self._lose(attempt)
            del unsure[attempt.token]
        if not unsure:
            return []
        adopted = []
        found, trace = self._look_for(unsure)
        for token, attempt in unsure.items():
            stat = found.get(token)
            if stat is None:
                (self._begin_anew if trace is Trace.NONE else self._lose)(attempt)
                continue
            tools = self._supervisor.machine.tools
            made_by = BUBBLEWRAP if tools is None else tools.words
            isolation = made_by if attempt.intended.sandboxed else "process"
            spawned = Spawned(token, stat.pid, stat.start_ticks, attempt.intended.at, isolation)
            self._supervisor.journal.note(attempt.story, spawned)
            if attempt.story.accepted is not None and attempt.story.launching is None:
                # It runs, so all was there; where its metadata was served is not known any more.
                launching = Launching(token, 0, attempt.intended.at)
                self._supervisor.journal.note(attempt.story, launching)
            if self._adopt(attempt, spawned):
                adopted.append(attempt)
        return adopted

    def _look_for(self, unsure: dict[str, Attempt]) -> tuple[dict[str, ProcessStat], Trace]:
        """The processes of attempts that were being started, and whether the others may have begun."""
        until = time.monotonic() + _SHOWS_WITHIN_S
        # Without that line in a damaged journal it may have been started at any time.
        since_ticks = min(
            one.story.spawning.ticks if one.story.spawning is not None else 0 for one in unsure.values()
        )
        known: dict[int, list[Spawned]] = {}
        for one in self._supervisor.attempts.values():
            if one.spawned is not None:
                known.setdefault(one.spawned.pid, []).append(one.spawned)

        def explained(pid: int, ticks: int) -> bool:
            return any(one.started_at_ticks(ticks) for one in known.get(pid, ()))

        def exits() -> list[OrphanExit]:
            self._read_exits()
            return [line for lines in self._known_exits.values() for line in lines]

        while True:
            found = find_by_token(unsure, self._agent_id)
            missing = unsure.keys() - found.keys()
            if not missing:
                return found, Trace.NONE
            token_of = partial(attempt_token, agent_id=self._agent_id)
            trace = trace_of_starts(since_ticks, explained, token_of, missing, exits)
            if trace is not Trace.UNCLEAR or time.monotonic() >= until:
                return found, trace
            time.sleep(_LOOK_EVERY_S)

    def tick(self) -> None:
        """Close adopted attempts whose end is known by now, or cannot be known any more."""
        if not self._departed:
            return
        self._read_exits()
        waiting = []
        for deadline, attempt, pidfd in self._departed:
            if self._close_if_known(attempt, pidfd):
                os.close(pidfd)
            elif time.monotonic() >= deadline:
                os.close(pidfd)
                self._lose(attempt)
            else:
                waiting.append((deadline, attempt, pidfd))
        self._departed = waiting
        self._supervisor.journal.flush()
        self.empty_exits_when_done()

    def empty_exits_when_done(self) -> None:
        """Drop the warden's lines when no attempt can need them; the journal must hold what they said."""
        if not self._departed and not self._running:
            self._exits.empty()

    def _read_exits(self) -> None:
        for line in self._exits.read_new():
            self._known_exits.setdefault(line.pid, []).append(line)

    def _adopt(self, attempt: Attempt, spawned: Spawned) -> bool:
        """Watch a process that still runs; close the attempt if it does not. Return whether it runs."""
        try:
            pidfd = pidfd_of(spawned.pid)
        except OSError as error:
            # It may run, and what runs must never be called lost. The next agent tries again.
            raise AgentError(
                f"{attempt.token} cannot be watched: {error}; raise the limit of open files (ulimit -n)"
            ) from None
        stat = read_stat(spawned.pid)
        is_there = pidfd >= 0 and stat is not None and spawned.started_at_ticks(stat.start_ticks)
        if is_there and stat is not None and stat.state != "Z":
            self._running[attempt.token] = (attempt, pidfd)
            self._on_readable(pidfd, lambda: self._on_departed(attempt, pidfd))
            attempt.launcher.adopted(attempt)
            if not attempt.enrolled:
                self._supervisor.newly_started.append(attempt)
            if attempt.story.accepted is not None:
                self._supervisor.staged.take(attempt)
            if attempt.story.noticed is not None:
                self._supervisor.stops.interrupt(attempt)
            return True
        if is_there:
            # Ended, not yet reaped: its parent will write it down.
            self._departed.append((time.monotonic() + _CODE_WITHIN_S, attempt, pidfd))
            return False
        if pidfd >= 0:
            os.close(pidfd)
        self._read_exits()
        if not self._close_if_known(attempt, -1):
            self._lose(attempt)
        return False

    def _on_departed(self, attempt: Attempt, pidfd: int) -> None:
        self._on_readable(pidfd, None)
        del self._running[attempt.token]
        self._kill_members(attempt)
        self._departed.append((time.monotonic() + _CODE_WITHIN_S, attempt, pidfd))

    def _close_if_known(self, attempt: Attempt, pidfd: int) -> bool:
        spawned = attempt.spawned
        assert spawned is not None
        lines = self._known_exits.get(spawned.pid, [])
        line = next((line for line in lines if spawned.started_at_ticks(line.start_ticks)), None)
        if line is not None:
            lines.remove(line)
        status = line.wait_status if line is not None else pidfd_wait_status(pidfd)
        if status is None:
            return False
        code = os.waitstatus_to_exitcode(status)
        at = line.at if line is not None else now_ms()
        attempt.launcher.exited(attempt, code if code >= 0 else 128 - code, at)
        return True

    def _lose(self, attempt: Attempt) -> None:
        attempt.launcher.lost(attempt, now_ms())

    def _kill_members(self, attempt: Attempt) -> None:
        """Kill what an adopted attempt left: its orphans went to the warden, so only a search finds them."""
        processes = snapshot()
        targets = {stat.pid for stat in members(processes, {attempt.pid}).get(attempt.pid, [])}
        warden = os.getppid()
        for pid, stat in processes.items():
            if (
                stat.ppid == warden
                and pid != os.getpid()
                and attempt_token(pid, self._agent_id) == attempt.token
            ):
                targets.add(pid)
        for pid in targets - {attempt.pid}:
            send(pid, signal.SIGKILL)

    def _stop_strays(self, replay: Replay) -> None:
        """Kill what is left of attempts that ended while no agent was there to see it, or that nobody knows."""
        live = [one for one in self._supervisor.attempts.values() if not one.gone]
        cgroups = self._supervisor.machine.cgroups
        tokens = {one.token for one in live}
        roots = {one.pid for one in live if one.pid}
        for hosted in [one.story.hosted for one in live if one.story.hosted is not None]:
            roots.add(hosted.pid)
            tokens.add(hosted.container)  # What is in a container is not below its keeper.
        killed = stop_strays(self._agent_id, tokens, roots, cgroups)
        unknown = sorted(token for token in killed if token and token not in self._supervisor.attempts)
        if replay.damaged:
            say(
                "the journal is damaged; attempts that it does not know are stopped, and the daemon starts them anew"
            )
        if unknown:
            say(
                "attempts still ran that the journal does not know, which was damaged or removed;"
                f" stopped: {', '.join(unknown)}"
            )
        for group in empty_groups(cgroups, tokens):
            group.remove()


def pidfd_wait_status(pidfd: int) -> int | None:
    """Ask the kernel how a pidfd's process ended; None before it was collected, or on older kernels."""
    if pidfd < 0:
        return None
    request = bytearray(_PIDFD_INFO.size)
    struct.pack_into("Q", request, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, request)
    except OSError:
        return None
    fields = _PIDFD_INFO.unpack(bytes(request))
    return int(fields[-1]) if fields[0] & _PIDFD_INFO_EXIT else None
