"""The life of attempts on this machine: accepted, started, stopped, ended, forgotten.

Decides what is written to the journal and what is reported, in this order: journal first, report second.
Must not know the socket (it fills `outbox`), nor how memory is watched (limits.py) or how attempts of an
earlier agent are taken over (recovery.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable

from windfall.agent.attempt import Attempt
from windfall.agent.cgroups import AttemptCgroup
from windfall.agent.companions import OnReadable
from windfall.agent.container.attempts import ContainerAttempts
from windfall.agent.courier_link import Couriers
from windfall.agent.directories import PrivateDirectories
from windfall.agent.errors import AgentError
from windfall.agent.janitor import Janitor
from windfall.agent.journal import Forgotten, Journal
from windfall.agent.left_files import with_findings
from windfall.agent.machine import Machine
from windfall.agent.messages import (
    Exited,
    Forget,
    Lost,
    Message,
    Refused,
    Result,
    Start,
    Started,
)
from windfall.agent.orphans import Orphans
from windfall.agent.preparation import intend, make_directories, prepare
from windfall.agent.spawner import Launch, Launched, refusal
from windfall.agent.speech import say
from windfall.agent.staged import StagedAttempts
from windfall.agent.stages import Accepted, Ended, Hosted, Story, Told
from windfall.agent.starting import Starts
from windfall.agent.stopping import Stops, send
from windfall.agent.workers.pool import WarmWorkers

OUT_OF_MEMORY = "OutOfMemoryError: Container killed due to memory usage"
_OUT_OF_MEMORY_CODE = 137
_CROWD = 16


def now_ms() -> int:
    """Return the time of day in milliseconds."""
    return time.time_ns() // 1_000_000


class Supervisor:
    """Holds all attempts that the daemon has not told it to forget."""

    def __init__(
        self, machine: Machine, journal: Journal, notify: Callable[[], None], on_readable: OnReadable
    ) -> None:
        self.machine = machine
        self.journal = journal
        self.attempts: dict[str, Attempt] = {}
        #: Started by this agent and not yet collected, by pid.
        self.own: dict[int, Attempt] = {}
        #: Reports of this loop round.
        self.outbox: list[Message] = []
        #: Attempts in the order of their start; limits.py takes them from here.
        self.newly_started: deque[Attempt] = deque()
        self.orphans = Orphans(machine.settings.agent_id)
        self.stops = Stops(self.orphans, self._note_now)
        #: Set at shutdown: nothing new is started.
        self.closing = False
        self.starts = Starts(journal, notify, self._may_start, self._launch, self._refuse, self._tell)
        self._waiting = self.starts.waiting
        self._cgroups_to_remove: list[AttemptCgroup] = []
        self._directory_users: dict[str, int] = {}
        self._directories = PrivateDirectories(machine.settings.attempts_directory)
        self.janitor = Janitor(self._directories, notify)
        self.containers = ContainerAttempts(
            machine,
            self.attempts,
            self._tell,
            self.newly_started.append,
            self._waiting.append,
            self.depart,
            self.end,
        )
        self.workers = WarmWorkers(
            machine,
            self._directories,
            on_readable,
            self.orphans.spare,
            self._note_now,
            lambda: sum(attempt.intended.memory_mib for attempt in self.live),
            self._cgroups_to_remove.append,
            self.containers,
            self._tell,
        )
        self.couriers = Couriers(machine.settings, on_readable, self.orphans.spare)
        self.staged = StagedAttempts(
            self.couriers,
            machine,
            journal,
            self._tell,
            self._waiting.append,
            self.end,
            lambda token: self.on_forget(Forget([token])) if token in self._forget_later else None,
            lambda attempt: self.stops.stop(attempt, 0.0),
        )
        #: Forgotten by the daemon while the courier still had its hands on their files.
        self._forget_later: set[str] = set()

    def _note_now(self, attempt: Attempt, record: Told | Hosted) -> None:
        self.journal.note(attempt.story, record)
        self.journal.flush()

    def _tell(self, message: Message) -> None:
        self.outbox.append(message)

    # --- what the daemon asks ------------------------------------------------------------------------

    def on_start(self, start: Start) -> None:
        """Accept an attempt, or repeat what is known of it."""
        known = self.attempts.get(start.token)
        if known is not None:
            self._repeat(known)
            return
        if self.closing:
            self.outbox.append(Refused(start.token, refusal("the agent is being shut down"), now_ms()))
            return
        intended = intend(start, self.machine, now_ms())
        attempt = Attempt(Story(intended), start)
        self.keep(attempt)
        self.journal.add(intended)
        if start.staging is None:
            self._waiting.append(attempt)
        else:
            self._accept_staged(attempt, start)

    def _accept_staged(self, attempt: Attempt, start: Start) -> None:
        accepted = Accepted(start)
        attempt.story.add(accepted)
        try:
            make_directories(attempt, start, self.machine, self._directories)
        except AgentError as error:
            self.end(attempt, Refused(start.token, refusal(str(error)), now_ms()))
            return
        self.journal.add(accepted)
        self.staged.take(attempt)

    def end_unstarted(self, attempt: Attempt, why: str) -> None:
        """Refuse an attempt after all."""
        self.starts.drop(attempt)
        self.end(attempt, Refused(attempt.token, refusal(why), now_ms()))

    def on_forget(self, forget: Forget) -> None:
        """Drop results that the daemon has recorded, and remove their directories."""
        done = []
        for token in forget.tokens:
            attempt = self.attempts.get(token)
            if attempt is None or attempt.live:
                continue
            if self.staged.holds(token):
                self._forget_later.add(token)
                continue
            self._forget_later.discard(token)
            del self.attempts[token]
            if attempt.intended.container:
                self.containers.forget(token)
            unused = [path for path in attempt.intended.private_directories if self._release(path)]
            if self.janitor.remove_now(token, unused):
                done.append(token)
        if done:
            self.journal.add(Forgotten(done))

    def tidy_directories(self) -> None:
        """Put away or remove what an earlier agent left, once its attempts are known."""
        known = self._directory_users.keys() | self.staged.unstored.directories
        for path in self._directories.leftovers(known):
            self.janitor.remove_now(None, [path])
        self.containers.tidy(list(self.attempts.values()))

    def forget_removed(self) -> None:
        """Write down what the janitor has finished; only then is the attempt's story dropped."""
        done = self.janitor.finished()
        if done:
            self.journal.add(Forgotten(done))

    # --- starting ------------------------------------------------------------------------------------

    def keep(self, attempt: Attempt) -> None:
        """Know an attempt from now on."""
        self.attempts[attempt.token] = attempt
        for path in attempt.intended.private_directories:
            self._directory_users[path] = self._directory_users.get(path, 0) + 1

    def disown(self, attempt: Attempt) -> None:
        """Know an attempt no more of which nothing was ever begun."""
        del self.attempts[attempt.token]
        for path in attempt.intended.private_directories:
            self._directory_users[path] -= 1  # It stays known: the attempt may come again.
        self.journal.add(Forgotten([attempt.token]))

    def _may_start(self, attempt: Attempt) -> bool:
        return self.workers.makes_room(attempt)

    def _launch(self, attempt: Attempt) -> Launch:
        start = attempt.start
        if attempt.intended.container:
            return self.containers.launch(attempt)
        assert start is not None
        if start.worker is not None:
            return self.workers.launch(attempt, start)
        return prepare(attempt, start, self.machine, self._directories)

    def _refuse(self, attempt: Attempt, reason: str, at: int) -> None:
        if attempt.intended.container:
            self.containers.on_launch_failed(attempt, reason, at)
        else:
            self.end(attempt, Refused(attempt.token, reason, at))

    def take_started(self) -> None:
        """Learn from the spawners which processes exist now."""
        for launched in self.starts.results():
            self._on_launched(launched)

    def _on_launched(self, launched: Launched) -> None:
        attempt = self.attempts[launched.token]
        spawned = launched.spawned
        if spawned is None and self.starts.once_more(attempt, launched.reason or "", launched.errno):
            return
        attempt.start = None
        if spawned is None:
            self._refuse(attempt, launched.reason or "", launched.at)
            return
        attempt.story.add(spawned)
        attempt.isolation = spawned.isolation
        self.own[spawned.pid] = attempt
        if attempt.intended.container:
            attempt.terminated = False
            self.containers.look(attempt)
            return
        self.workers.begin(attempt)
        self.outbox.append(_started(attempt))
        self.newly_started.append(attempt)

    # --- ending --------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Collect every process that ended.

        Each is only looked at, then written to the journal, then reaped: whichever process is killed in between,
        either this journal or the warden has the exit code.
        """
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            attempt = self.own.get(pid)
            if attempt is None:
                self.take_started()
                attempt = self.own.get(pid)
            if attempt is not None:
                del self.own[pid]
                code = ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
                self.end_exited(attempt, code, now_ms())
                self.journal.flush()
            elif self.starts.in_flight and not self.orphans.surely_has(pid):
                return  # Just started; its spawner reports it in a moment.
            os.waitpid(pid, 0)
            self.orphans.on_collected(pid)

    def end_exited(self, attempt: Attempt, code: int, at: int) -> None:
        """Close an attempt whose main process ended: kill what it left, then report."""
        if attempt.intended.container:
            self.containers.on_keeper_gone(attempt, at)
            return
        spawned = attempt.spawned
        assert spawned is not None
        reason = None
        group = attempt.cgroup
        if group is not None:
            if group.out_of_memory():
                attempt.over_memory = True
            for pid in group.pids() - {spawned.pid}:
                send(pid, signal.SIGKILL)
        if attempt.over_memory or self.workers.out_of_memory(attempt):
            code, reason = _OUT_OF_MEMORY_CODE, OUT_OF_MEMORY
        exited = Exited(attempt.token, code, reason, spawned.at, at, attempt.isolation)
        self.workers.close(attempt, exited, self.depart)

    def depart(self, attempt: Attempt, result: Exited | Lost) -> None:
        """No process of the attempt runs any more: report it, once what a staged one left is saved."""
        if isinstance(result, Exited):
            result = with_findings(attempt, result, self.machine)
        if attempt.story.accepted is None:
            self.end(attempt, result)
            return
        self._put_away(attempt, result.at)
        self.staged.departed(attempt, result)

    def end(self, attempt: Attempt, result: Result) -> None:
        """Write down and report a result."""
        self.journal.note(attempt.story, Ended(result))
        attempt.start = None
        if attempt.story.departed is None:
            self._put_away(attempt, result.at)
        if attempt.story.accepted is not None:
            self.staged.ended(attempt)
        self.outbox.append(result)

    def _put_away(self, attempt: Attempt, at: int) -> None:
        """Let go of what only a running process needs."""
        if attempt.story.spawned is not None:
            attempt.log_room.give_back()
            try:
                attempt.log_times.note(at)
            except OSError as error:
                say(f"{attempt.token}: no log times: {error}")
        if attempt.cgroup is not None:
            self._cgroups_to_remove.append(attempt.cgroup)
            attempt.cgroup = None
        self.stops.over(attempt)
        self.workers.release(attempt)

    def kill_leftovers(self) -> None:
        """Kill what ended attempts left behind, and remove their cgroups when they are empty."""
        self.orphans.kill_those_of_ended(self.own, self.attempts)
        if self._cgroups_to_remove:
            self._cgroups_to_remove[:] = [group for group in self._cgroups_to_remove if not group.remove()]

    def leave(self) -> None:
        """Tidy up at the end of the agent."""
        self.kill_leftovers()
        if self.machine.cgroups is not None:
            self.machine.cgroups.remove_if_empty()

    # --- the whole -----------------------------------------------------------------------------------

    def compact(self, epoch: int) -> None:
        """Rewrite the journal when it has grown and no thread is writing to it."""
        if self.journal.wants_compaction and self.starts.in_flight == 0:
            self.journal.flush()
            self.journal.rewrite(epoch, [attempt.story for attempt in self.attempts.values()])

    def results(self) -> list[Message]:
        """Return all results that the daemon has not acknowledged, and the news of what has none yet."""
        ended: list[Message] = [
            attempt.story.result for attempt in self.attempts.values() if attempt.story.result is not None
        ]
        return ended + self.staged.news() + self.containers.news(self.live)

    @property
    def live(self) -> list[Attempt]:
        """All attempts that have not ended."""
        return [attempt for attempt in self.attempts.values() if attempt.live]

    @property
    def crowded(self) -> bool:
        """Whether there are enough events that gathering them is worthwhile."""
        return len(self.own) + self.starts.in_flight > _CROWD

    @property
    def busy(self) -> bool:
        """Whether something must be looked at again soon even if no event comes."""
        return bool(self.stops or self._cgroups_to_remove)

    def _repeat(self, attempt: Attempt) -> None:
        if attempt.story.result is not None:
            self.outbox.append(attempt.story.result)
        elif attempt.started_at is not None:
            contained = attempt.intended.container
            self.outbox.append(self.containers.started(attempt) if contained else _started(attempt))

    def _release(self, path: str) -> bool:
        left = self._directory_users.get(path, 1) - 1
        if left > 0:
            self._directory_users[path] = left
            return False
        self._directory_users.pop(path, None)
        return path not in self.staged.unstored.directories


def _started(attempt: Attempt) -> Started:
    spawned, launching = attempt.story.spawned, attempt.story.launching
    assert spawned is not None
    prepared_at = launching.prepared_at if launching is not None else None
    return Started(attempt.token, spawned.pid, spawned.at, attempt.isolation, prepared_at)
