"""Watches a job until it ends: asks often at first and then less, and waits for a daemon that restarts.

Jobs outlive the daemon, so that its absence for a while is not a reason to give up. Must not print but notes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from windfall.backoff import Backoff, Pauses
from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint
from windfall.cli.errors import CliError, NoDaemon, UnknownJob
from windfall.cli.notes import fitted, note

#: A short job is noticed at once; a long one is not asked for more than twice a second.
POLL = Pauses(0.02, 0.5, 1.3)
#: How long the daemon may be away.
PATIENCE_S = 120.0
ABSENT_POLL_S = 0.5

Job = dict[str, Any]
#: Looks at the job as it is now; the answer is whether anything happened.
Look = Callable[[Client, Job], bool]


class Interruption:
    """Ctrl-C counted: the first is a request, the second raises KeyboardInterrupt."""

    def __init__(self, words: str) -> None:
        #: When the first came; by time.monotonic().
        self.asked_at: float | None = None
        self._words = fitted(f"windfall: {words}")
        self._before: Any = None

    def __enter__(self) -> Interruption:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _: int, __: FrameType | None) -> None:
        if self.asked_at is not None:
            raise KeyboardInterrupt
        self.asked_at = time.monotonic()
        # At once, also while the daemon does not answer; and not through a stream that may be in use.
        os.write(2, f"{self._words}\n".encode())


def watch(
    client: Client,
    data: Path | None,
    job_id: str,
    look: Look,
    ended: Callable[[Job], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Job:
    """Call `look` with the job, again and again until it has ended; answer the job as it ended."""
    backoff = Backoff(POLL)
    absent_since: float | None = None
    while True:
        try:
            job = described(client, job_id)
            happened = look(client, job)
        except NoDaemon as error:
            if absent_since is None:
                absent_since = clock()
                note(f"the daemon at {client.endpoint.url} is away; the job goes on, waiting for it")
            elif clock() - absent_since > PATIENCE_S:
                raise NoDaemon(f"{error}; then look at the job with `windfall logs -f {job_id}`") from None
            sleep(ABSENT_POLL_S)
            # It may come back at another port.
            with contextlib.suppress(CliError):
                client.endpoint = find_endpoint(data)
            continue
        absent_since = None
        if ended(job):
            return job
        if happened:
            backoff.succeeded()
        sleep(backoff.failed())


def described(client: Client, job_id: str) -> Job:
    """The JobDetail of an id that was known."""
    jobs: list[Job] = client.batch("DescribeJobs", jobs=[job_id])["jobs"]
    if not jobs:
        raise UnknownJob(f"job {job_id} is gone; finished jobs are kept for a limited time")
    return jobs[0]
