"""One attempt as the agent holds it in memory: its story so far and what is being done about it. No
behaviour beyond that.
"""

from __future__ import annotations

from windfall.agent.cgroups import AttemptCgroup
from windfall.agent.journal import Intended, Spawned, Story
from windfall.agent.log_times import LogTimes
from windfall.agent.messages import AttemptState, AttemptStatus, Exited, Refused, Start


class Attempt:
    """The mutable record of one attempt; `story` is what the journal knows too."""

    __slots__ = (
        "adopted",
        "cgroup",
        "enrolled",
        "grace_s",
        "isolation",
        "kill_at",
        "log_times",
        "over_memory",
        "start",
        "story",
        "terminated",
    )

    def __init__(self, story: Story, start: Start | None) -> None:
        self.story = story
        #: The message, until the process is started.
        self.start = start
        self.isolation = story.spawned.isolation if story.spawned is not None else ""
        self.log_times = LogTimes(story.intended.log_path, resume=start is None)
        self.cgroup: AttemptCgroup | None = None
        self.enrolled = False
        #: Set when a stop was asked for.
        self.grace_s: float | None = None
        #: When SIGKILL is due, on the monotonic clock.
        self.kill_at: float | None = None
        #: Whether SIGTERM has reached a process of the attempt.
        self.terminated = False
        self.over_memory = False
        #: Whether an earlier agent started it, so that its end comes from elsewhere.
        self.adopted = False

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
    def running(self) -> bool:
        """Whether the main process exists and has not ended."""
        return self.story.spawned is not None and self.story.result is None

    @property
    def state(self) -> AttemptState:
        """The state in the words of the protocol."""
        result = self.story.result
        if result is None:
            return "running" if self.story.spawned is not None else "starting"
        if isinstance(result, Exited):
            return "exited"
        return "refused" if isinstance(result, Refused) else "lost"

    def status(self) -> AttemptStatus:
        """Return the attempt's line in the inventory."""
        intended, spawned = self.story.intended, self.story.spawned
        return AttemptStatus(
            token=intended.token,
            task_id=intended.task_id,
            state=self.state,
            pid=spawned.pid if spawned is not None else None,
            started_at=spawned.at if spawned is not None else None,
            isolation=self.isolation,
        )
