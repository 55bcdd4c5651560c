"""One try at running a job, with all its time stamps, and how its end is read.

Decides what an attempt's end means (succeeded, failed and with which words). Must not know about retries or
capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, TaskId


class StopCause(StrEnum):
    """Why Windfall itself asked an attempt to stop."""

    TERMINATED = "terminated"
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"


EXITED = "Essential container in task exited"
TIMED_OUT = "Job attempt duration exceeded timeout"
FAILED_TO_START = "Task failed to start"


def host_lost(instance: InstanceId) -> str:
    """The status reason that clients' retry rules know as a lost host (`Host EC2*`)."""
    return f"Host EC2 (instance {instance}) terminated."


@dataclass(slots=True)
class Attempt:
    """One try. Times are milliseconds since the epoch; None is "not yet" or "not known"."""

    number: int
    token: AttemptToken
    task_id: TaskId
    environment: EnvironmentName
    instance: InstanceId
    #: The GPU devices that are this attempt's own while it lives.
    gpu_ids: tuple[str, ...]
    log_stream: str
    placed_at: int
    started_at: int | None = None
    stopped_at: int | None = None
    #: When it was asked to stop, and why.
    stop_at: int | None = None
    stop_cause: StopCause | None = None
    exit_code: int | None = None
    #: About the process: OutOfMemoryError, CannotPullContainerError, ...
    reason: str | None = None
    #: About the attempt: "Essential container in task exited", "Host EC2 ...".
    status_reason: str | None = None
    #: What kept it apart from the rest of the host, as the agent saw it.
    isolation: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether its process ended by itself with exit code 0."""
        return self.exit_code == 0 and self.reason is None
