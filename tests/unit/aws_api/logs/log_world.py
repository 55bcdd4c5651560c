"""Streams in memory over real files, a gate that asks them in a thread, and a real server when wanted."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.logs.service import Batching, logs_service
from windfall.aws_api.protocol.application import Application
from windfall.aws_api.protocol.keys import Key, KeyRing, Role, ensure_keys_file
from windfall.aws_api.protocol.service import Call, Caller, ModelledService
from windfall.control.changes import LogStream
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import (
    DefinitionKey,
    EnvironmentName,
    InstanceId,
    JobId,
    QueueName,
    TaskId,
    attempt_token,
)
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.states import JobState

GROUP = "/aws/batch/job"
ACCOUNT = "123456789012"
#: When nothing else is said, logs were written at T and it is a minute later.
T = 1_700_000_000_000
SUBMISSION = Submission("train", QueueName("q"), DefinitionKey("d:1"), Resources(1, 64), RetryStrategy())


class FakeStore:
    """The part of the Store that logs ask."""

    def __init__(self) -> None:
        self.streams: dict[tuple[str, str], LogStream] = {}
        self.by_id: dict[str, Job] = {}

    def jobs(self, ids: Sequence[JobId]) -> list[Job]:
        return [self.by_id[job_id] for job_id in ids if job_id in self.by_id]

    def declared(self, kind):
        return []

    def log_groups(self) -> list[str]:
        return sorted({group for group, _ in self.streams})

    def log_streams(self, group: str, prefix: str, limit: int, after: str | None) -> list[LogStream]:
        names = sorted(name for of, name in self.streams if of == group and name.startswith(prefix))
        return [self.streams[group, name] for name in names if after is None or name > after][:limit]

    def log_stream(self, group: str, name: str) -> LogStream | None:
        return self.streams.get((group, name))


@dataclass
class Log:
    """One stream, its attempt and its files, and ways to let time pass on them."""

    stream: LogStream
    attempt: Attempt
    job: Job
    path: Path

    def write(self, content: bytes, at: int | None = None) -> Log:
        """Append as the job would; with `at`, the agent notes it."""
        with open(self.path, "ab") as file:
            file.write(content)
        if at is not None:
            self.note(at)
        return self

    def note(self, at: int) -> Log:
        with open(f"{self.path}.times", "ab") as file:
            file.write(struct.pack("<QQ", self.path.stat().st_size, at))
        return self.touched(at)

    def touched(self, at: int) -> Log:
        for path in (self.path, Path(f"{self.path}.times")):
            if path.exists():
                os.utime(path, ns=(at * 1_000_000, at * 1_000_000))
        return self

    def end(self, at: int) -> Log:
        self.attempt.stopped_at = at
        self.job.state = JobState.SUCCEEDED
        self.job.stopped_at = at
        return self


@dataclass
class World:
    """All that the service sees: store, files, clock."""

    folder: Path
    store: FakeStore = field(default_factory=FakeStore)
    now: int = T + 60_000
    batching: Batching | None = None
    _built: ModelledService | None = None

    @property
    def logs_dir(self) -> Path:
        return self.folder / "logs"

    @property
    def files(self) -> AttemptDirectory:
        return AttemptDirectory(self.logs_dir)

    def log(self, name: str, *, group: str = GROUP, created_at: int = T) -> Log:
        """A stream whose attempt runs and has written nothing."""
        self.logs_dir.mkdir(exist_ok=True)
        job_id = JobId(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{group} {name}")))
        task = TaskId(hashlib.md5(job_id.encode()).hexdigest())
        token = attempt_token(job_id, 1)
        attempt = Attempt(1, token, task, EnvironmentName("e"), InstanceId("i-1"), (), name, created_at)
        job = Job(job_id, SUBMISSION, JobState.RUNNING, created_at, attempts=[attempt])
        stream = LogStream(group, name, task, job_id, created_at)
        self.store.by_id[job_id] = job
        self.store.streams[group, name] = stream
        return Log(stream, attempt, job, self.logs_dir / f"{task}.log")

    async def read(self, question: Callable[[Any], Any]) -> Any:
        return await asyncio.to_thread(question, self.store)

    async def execute(self, command: Any, tenant: str | None = None) -> Any:
        raise AssertionError("logs change nothing")

    def explain(self, job_id: JobId) -> Any:
        raise AssertionError("logs explain nothing")

    def known(self, names: Sequence[EnvironmentName]) -> bool:
        raise AssertionError("logs ask for no environments")

    def service(self) -> ModelledService:
        """The service over this world, made at the first question."""
        if self._built is None:
            self._built = logs_service(self, self.files, ACCOUNT, lambda: self.now, batch=self.batching)
        return self._built

    def ask(self, operation: str, **params: Any) -> dict[str, Any]:
        """Call a handler as the protocol would."""
        handler = self.service()._handlers[operation]
        caller = Caller("AKIA", Role.READ, "default")
        return asyncio.run(handler(Call("logs", operation, params, caller, "eu-west-1", "r", 0)))

    def get(self, name: str, **params: Any) -> dict[str, Any]:
        return self.ask("GetLogEvents", logGroupName=GROUP, logStreamName=name, **params)

    def find(self, **params: Any) -> dict[str, Any]:
        return self.ask("FilterLogEvents", **{"logGroupName": GROUP, **params})

    def find_all(self, **params: Any) -> list[dict[str, Any]]:
        """All events over all pages, which must come to an end."""
        events: list[dict[str, Any]] = []
        for _ in range(10_000):
            page = self.find(**params)
            events += page["events"]
            if "nextToken" not in page:
                return events
            params["nextToken"] = page["nextToken"]
        raise AssertionError("the pages never end")


def messages(answer: dict[str, Any] | list[dict[str, Any]]) -> list[str]:
    """The messages of an answer or of its events."""
    events = answer if isinstance(answer, list) else answer["events"]
    return [event["message"] for event in events]


@contextlib.contextmanager
def served(world: World) -> Iterator[tuple[str, Key]]:
    """Serve a world over HTTP: its address and a key for it."""
    keys_path = world.folder / "keys.json"
    key = ensure_keys_file(keys_path, now=1)[0]
    application = Application([world.service()], KeyRing(keys_path), time.time, lambda: str(uuid.uuid4()))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        # The socket listens already, so a client that connects now is served once the loop runs.
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", key
    finally:
        server.should_exit = True
        thread.join(timeout=120)
        listener.close()
        assert not thread.is_alive()
