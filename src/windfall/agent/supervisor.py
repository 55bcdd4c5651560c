"""The life of attempts on this machine: what the reactor decides is carried out here, with real processes and files.

In this order: the journal first, then the actions. Must not know the socket (it fills `outbox`), how memory is watched
(limits.py), how a process comes into being (launchers.py), or how attempts of an earlier agent are taken over
(recovery.py).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from windfall.agent import events
from windfall.agent.attempt import Attempt
from windfall.agent.cgroups import AttemptCgroup
from windfall.agent.companions import OnReadable
from windfall.agent.container.launcher import ContainerLauncher
from windfall.agent.courier_link import Couriers
from windfall.agent.directories import Janitor, PrivateDirectories
from windfall.agent.errors import AgentError, refusal
from windfall.agent.journal import Journal
from windfall.agent.launchers import Launcher, ProcessLauncher
from windfall.agent.left_files import with_findings
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited, Lost, Message, Rebalance, Shutdown, Start
from windfall.agent.notices import write_notice, write_rebalance
from windfall.agent.orphans import Orphans
from windfall.agent.preparation import intend, make_directories
from windfall.agent.reactor import AgentState, on_event
from windfall.agent.records import Forgotten, Hosted, Told
from windfall.agent.spawner import Launched
from windfall.agent.speech import say
from windfall.agent.staged import CLOSING_WITHIN_S, StagedAttempts
from windfall.agent.stages import Story
from windfall.agent.starting import Starts
from windfall.agent.stopping import Stops
from windfall.agent.workers.hosts import runs_in_worker
from windfall.agent.workers.pool import WarmWorkers

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
        self.state = AgentState()
        #: What is being done about each story of the state.
        self.attempts: dict[str, Attempt] = {}
        #: Started by this agent and not yet collected, by pid.
        self.own: dict[int, Attempt] = {}
        #: Called for each attempt that the daemon has told to forget.
        self.on_forgotten: Callable[[Attempt], None] = lambda _: None
        #: Reports of this loop round.
        self.outbox: list[Message] = []
        #: Attempts in the order of their start; limits.py takes them from here.
        self.newly_started: deque[Attempt] = deque()
        self.orphans = Orphans(machine.settings.agent_id)
        self.stops = Stops(self._note_now)
        self.starts = Starts(journal, notify, self._may_start, self.react, self._tell)
        self._cgroups_to_remove: list[AttemptCgroup] = []
        self._directory_users: dict[str, int] = {}
        self._directories = PrivateDirectories(machine.settings.attempts_directory)
        self.janitor = Janitor(self._directories, notify)
        self._processes = ProcessLauncher(machine, self._directories, self.orphans, self.react, self._leave)
        self.containers = ContainerLauncher(
            machine, self.attempts, self._tell, self.starts.waiting.append, self.react, self._leave
        )
        self.workers = WarmWorkers(
            machine,
            self._directories,
            on_readable,
            self.orphans.spare,
            self._note_now,
            self._live_memory_mib,
            self._cgroups_to_remove.append,
            self._processes,
            self.containers,
            self._tell,
            self._leave,
        )
        self.couriers = Couriers(machine.settings, on_readable, self.orphans.spare)
        self.staged = StagedAttempts(self.couriers, machine, journal.directory, self._tell, self.react)
        self._carry_out: dict[type, Callable[[Any], None]] = {
            events.Tell: lambda action: self.outbox.append(action.message),
            events.StageIn: self._stage_in,
            events.Launch: lambda action: self.starts.waiting.append(self.attempts[action.token]),
            events.Withdraw: lambda action: self.starts.drop(self.attempts[action.token]),
            events.EndWithin: self._end_within,
            events.GiveNotice: self._give_notice,
            events.Watch: lambda action: self.newly_started.append(self.attempts[action.token]),
            events.PutAway: self._put_away,
            events.StageOut: lambda action: self.staged.save(self.attempts[action.token]),
            events.Drop: lambda action: self.staged.drop(self.attempts[action.token]),
            events.Remove: self._remove,
        }

    def react(self, event: events.AgentEvent) -> None:
        """Write down what follows from an event, and do it."""
        reaction = on_event(self.state, event, now_ms())
        for record in reaction.records:
            self.journal.add(record)
        for action in reaction.actions:
            self._carry_out[type(action)](action)

    def _note_now(self, attempt: Attempt, record: Told | Hosted) -> None:
        self.journal.note(attempt.story, record)
        self.journal.flush()

    def _tell(self, message: Message) -> None:
        self.outbox.append(message)

    # --- what the daemon asks ------------------------------------------------------------------------

    def on_start(self, start: Start) -> None:
        """Accept an attempt, or repeat what is known of it."""
        story = self.state.stories.get(start.token)
        if story is None:
            story = Story(intend(start, self.machine, now_ms()), order=start)
            if not self.state.closing:
                self._attend(story)
        self.react(events.Ordered(start.token, story))

    def on_rebalance(self, rebalance: Rebalance) -> None:
        """Pass a recommendation on to the job; it changes nothing else."""
        attempt = self.attempts.get(rebalance.token)
        if attempt is not None and attempt.live:
            write_rebalance(attempt, rebalance.at)

    def on_shutdown(self, shutdown: Shutdown) -> None:
        """Start nothing more; stop everything, if that is asked."""
        if shutdown.kill:
            self.staged.finish_within_s = CLOSING_WITHIN_S
        self.react(shutdown)

    def tidy_directories(self) -> None:
        """Put away or remove what an earlier agent left, once its attempts are known."""
        known = self._directory_users.keys() | self.staged.unstored.directories
        for path in self._directories.leftovers(known):
            self.janitor.remove_now(None, [path])
        self.containers.tidy(list(self.attempts.values()))

    def forget_removed(self) -> None:
        """Write down what the janitor has finished."""
        if done := self.janitor.finished():
            self.react(events.Removed(done))

    # --- attempts ------------------------------------------------------------------------------------

    def keep(self, story: Story) -> Attempt:
        """Know an attempt of an earlier agent from now on."""
        self.state.stories[story.token] = story
        return self._attend(story)

    def _attend(self, story: Story) -> Attempt:
        attempt = self.attempts[story.token] = Attempt(story, self._launcher_of(story))
        for path in story.intended.private_directories:
            self._directory_users[path] = self._directory_users.get(path, 0) + 1
        return attempt

    def _launcher_of(self, story: Story) -> Launcher:
        if story.intended.keeper:
            return self.containers
        return self.workers if runs_in_worker(story) else self._processes

    def disown(self, attempt: Attempt) -> None:
        """Know an attempt no more of which nothing was ever begun."""
        del self.attempts[attempt.token], self.state.stories[attempt.token]
        for path in attempt.intended.private_directories:
            self._directory_users[path] -= 1  # It stays known: the attempt may come again.
        self.journal.add(Forgotten([attempt.token]))

    # --- starting ------------------------------------------------------------------------------------

    def _stage_in(self, action: events.StageIn) -> None:
        attempt = self.attempts[action.token]
        order = attempt.story.order
        assert order is not None
        try:
            make_directories(attempt, order, self.machine, self._directories)
        except AgentError as error:
            self.react(events.Failed(action.token, refusal(str(error)), now_ms()))
            return
        self.staged.take(attempt)

    def _may_start(self, attempt: Attempt) -> bool:
        if attempt.story.order is None:
            return True  # Another keeper of what is there already.
        if attempt.intended.gpu_ids and self.containers.tidying:
            return False  # What is being removed may have its GPU.
        return self.workers.makes_room(attempt) and attempt.launcher.is_ready(attempt)

    def take_started(self) -> None:
        """Learn from the spawners which processes exist now."""
        for launched in self.starts.results():
            self._on_launched(launched)

    def _on_launched(self, launched: Launched) -> None:
        attempt, spawned = self.attempts[launched.token], launched.spawned
        if spawned is None:
            reason = launched.reason or ""
            if not self.starts.once_more(attempt, reason, launched.errno):
                attempt.launcher.not_launched(attempt, reason, launched.at)
            return
        self.own[spawned.pid] = attempt
        self.react(spawned)
        attempt.launcher.spawned(attempt)

    # --- ending --------------------------------------------------------------------------------------

    def _end_within(self, action: events.EndWithin) -> None:
        self.stops.stop(self.attempts[action.token], action.grace_s)

    def _give_notice(self, action: events.GiveNotice) -> None:
        attempt = self.attempts[action.token]
        self.journal.flush()
        # Before any signal: the process that gets one may look for it.
        write_notice(attempt)
        self.stops.interrupt(attempt)

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
                attempt.launcher.exited(attempt, code, now_ms())
                self.journal.flush()
            elif self.starts.in_flight and not self.orphans.surely_has(pid):
                return  # Just started; its spawner reports it in a moment.
            os.waitpid(pid, 0)
            self.orphans.on_collected(pid)

    def _leave(self, attempt: Attempt, result: Exited | Lost) -> None:
        """No process of the attempt runs any more: find out what can be said about its end."""
        if isinstance(result, Exited):
            result = with_findings(attempt, result, self.machine)
        self.react(events.Left(attempt.token, result))

    def _put_away(self, action: events.PutAway) -> None:
        """Let go of what only a running process needs."""
        attempt = self.attempts[action.token]
        if attempt.spawned is not None:
            attempt.log_room.give_back()
            attempt.log_limit.keep()
            try:
                attempt.log_times.note(action.at)
            except OSError as error:
                say(f"{attempt.token}: no log times: {error}")
        if attempt.cgroup is not None:
            self._cgroups_to_remove.append(attempt.cgroup)
            attempt.cgroup = None
        self.stops.over(attempt)
        attempt.launcher.release(attempt)

    def _remove(self, action: events.Remove) -> None:
        done = []
        for token in action.tokens:
            attempt = self.attempts.pop(token)
            self.on_forgotten(attempt)
            attempt.launcher.forget(token)
            unused = [path for path in attempt.intended.private_directories if self._release(path)]
            if self.janitor.remove_now(token, unused):
                done.append(token)
        self.react(events.Removed(done))

    def _live_memory_mib(self) -> int:
        waiting = self.state.waits_for
        return sum(story.intended.memory_mib for story in self.state.live if story.token not in waiting)

    def _release(self, path: str) -> bool:
        left = self._directory_users.get(path, 1) - 1
        if left > 0:
            self._directory_users[path] = left
            return False
        self._directory_users.pop(path, None)
        return path not in self.staged.unstored.directories

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
            self.journal.rewrite(epoch, self.state.stories.values())

    def results(self) -> list[Message]:
        """Return all results that the daemon has not acknowledged, and the news of what has none yet."""
        ended: list[Message] = [
            story.result for story in self.state.stories.values() if story.result is not None
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
