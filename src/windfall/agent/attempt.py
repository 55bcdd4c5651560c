"""One attempt as the agent holds it in memory: its story so far and what is being done about it. No
behaviour beyond that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.agent.attempt_files import LogTimes
from windfall.agent.cgroups import AttemptCgroup
from windfall.agent.container.state import KeeperState
from windfall.agent.log_limit import LogLimit
from windfall.agent.log_room import LogRoom
from windfall.agent.messages import Progressed
from windfall.agent.records import Intended, Spawned
from windfall.agent.stages import GONE, RUNS, Stage, Story

if TYPE_CHECKING:
    from windfall.agent.launchers import Launcher


class Attempt:
    """The mutable record of one attempt; `story` is what the journal knows too."""

    __slots__ = (
        "cgroup",
        "container",
        "container_pid",
        "enrolled",
        "entered_until",
        "fault",
        "grace_s",
        "keepers",
        "kill_at",
        "launcher",
        "listeners_sought_at",
        "log_limit",
        "log_room",
        "log_times",
        "news",
        "over_memory",
        "story",
        "terminated",
        "told",
    )

    def __init__(self, story: Story, launcher: Launcher) -> None:
        self.story = story
        #: How it runs.
        self.launcher = launcher
        self.log_limit = LogLimit(story.intended.log_path, story.intended.log_limit_bytes)
        self.log_room = LogRoom(story.intended.log_path)
        self.log_times = LogTimes(story.intended.log_path, resume=story.order is None)
        self.cgroup: AttemptCgroup | None = None
        #: What its keeper has written down, and the container's first process while it runs; None for a process.
        self.container: KeeperState | None = None
        self.container_pid: int | None = None
        #: The limits of a child in a warm worker are the worker's.
        self.enrolled = launcher.keeps_limits or story.hosted is not None
        #: The processes that keep sessions of people inside it, and until when what those used up may still show.
        self.keepers: set[int] = set()
        self.entered_until = 0.0
        #: Set when a stop was asked for.
        self.grace_s: float | None = None
        #: When SIGKILL is due, on the monotonic clock.
        self.kill_at: float | None = None
        #: Whether SIGTERM has reached a process of the attempt.
        self.terminated = False
        self.over_memory = False
        #: The last report about a staged attempt, all parts together.
        self.news: Progressed | None = None
        #: Why it had to be killed, when that was not its own doing.
        self.fault: str | None = None
        #: Processes (pid and start time) that got SIGTERM because of a notice.
        self.told: frozenset[tuple[int, int]] = (
            frozenset(story.told.processes) if story.told is not None else frozenset()
        )
        #: When they were last looked for, on the monotonic clock.
        self.listeners_sought_at = 0.0

    @property
    def token(self) -> str:
        """The attempt's name for ever."""
        return self.story.intended.token

    @property
    def intended(self) -> Intended:
        """The intent in the journal."""
        return self.story.intended

    @property
    def spawned(self) -> Spawned | None:
        """The process, once there is one."""
        return self.story.spawned

    @property
    def pid(self) -> int:
        """The main process; 0 before it exists."""
        return self.story.spawned.pid if self.story.spawned is not None else 0

    @property
    def stage(self) -> Stage:
        """How far it has come."""
        return self.story.stage

    @property
    def running(self) -> bool:
        """Whether the main process exists and has not ended."""
        return self.story.stage in RUNS

    @property
    def starting(self) -> bool:
        """Whether its main process may exist already, although it has not been reported yet."""
        return self.story.stage <= Stage.STARTING

    @property
    def gone(self) -> bool:
        """Whether its main process has ended, or will never start."""
        return self.story.stage in GONE

    @property
    def live(self) -> bool:
        """Whether it has no result yet."""
        return self.story.stage is not Stage.ENDED

    @property
    def started_at(self) -> int | None:
        """When the job itself began to run."""
        return self.story.began_at
