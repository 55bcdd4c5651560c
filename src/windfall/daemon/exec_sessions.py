"""Windfall's own operations behind `windfall exec`: a command inside a running job, for as long as a client is there.

A session is a connection to the agent of the job's machine. Clients fetch what comes over it, and send what goes over
it, in requests of their own, so that a session passes any proxy. Each byte has a position: a request that is sent again
changes nothing. Decides who may enter which job and when a session is given up. Output that nobody
fetches stays where it is: little of it is read ahead here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from windfall.agent.errors import AgentUnreachable
from windfall.agent.inside.frames import INPUT, INPUT_END, MOST_BYTES, ended, frame, window
from windfall.agent.messages import Exec, encode
from windfall.agent.reach import Stream
from windfall.aws_api.protocol.errors import AccessDeniedError, ApiError, unrecognized_client
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.service import Call, Caller
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.daemon.request_fields import (
    input_bytes,
    needed_count,
    needed_text,
    no_such_job,
    terminal_size,
    wanted_command,
)
from windfall.daemon.stored_files import found_job
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.ids import InstanceId, JobId, split_node
from windfall.jobs.job import Job
from windfall.jobs.states import JobState
from windfall.jobs.submitters import Submitter

log = logging.getLogger(__name__)
log.setLevel(logging.INFO)  # Who entered which job is always told.

MOST_PER_TENANT = 32
#: A client that has not been heard for this long is gone.
SILENT_S = 30.0
#: Less than a daemon waits for the answer of another one to which it passes a request on.
WAIT_MOST_S = 5.0
_LOOK_EVERY_S = 1.0
#: What one answer has at most.
_ANSWER_BYTES = 1 << 19
_INPUT_BYTES = 1 << 19
_NOT_TAKEN = (
    "the agent of the job's machine did not take the session; an agent of an earlier version of Windfall is replaced"
    " when its jobs have ended"
)
_AWAY = "the agent of the job's machine does not answer; try again in a moment."
_CUT_OFF = "the session was cut off on the job's machine; run `windfall exec` again"


#: Opens a stream to the agent of an engine's instance; AgentUnreachable when it does not answer.
Dial = Callable[[str | None, InstanceId], Awaitable[Stream]]


class Entrance(NamedTuple):
    """A running job as the core knows it."""

    token: str
    #: The engine that its environment names; None for the daemon's default.
    engine: str | None
    instance: InstanceId
    name: str
    submitter: Submitter


@dataclass(slots=True)
class OpenSession:
    """One connection to an agent, on behalf of one key."""

    id: str
    caller: Caller
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heard_s: float
    #: How many bytes were fetched before the last answer, and that answer, until the next request shows that it came.
    fetched: int = 0
    answer: bytes = b""
    #: How many bytes of input have come.
    written: int = 0
    input_ended: bool = False
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def takes_input(self) -> bool:
        """Whether little enough waits for the agent's side that more may be sent there."""
        return self.writer.transport.get_write_buffer_size() <= _INPUT_BYTES


class ExecSessions:
    """All open sessions of this daemon."""

    def __init__(self, dial: Dial, find_key: Callable[[str], Key | None]) -> None:
        """`find_key` knows the keys that are valid now."""
        self._dial = dial
        self._find_key = find_key
        self._open: dict[str, OpenSession] = {}
        #: Held while one is opened: many that are asked for at once must not all pass the same check.
        self._opening = asyncio.Lock()
        self._looking: asyncio.TimerHandle | None = None

    async def begin(self, caller: Caller, entrance: Entrance, wanted: Exec) -> None:
        """Open a session; the agent's answer comes over it. One that is open already stays as it is."""
        async with self._opening:
            await self._begin(caller, entrance, wanted)

    async def _begin(self, caller: Caller, entrance: Entrance, wanted: Exec) -> None:
        open_session = self._open.get(wanted.session)
        if open_session is not None and open_session.caller == caller:
            return
        if open_session is not None:
            raise ApiError("Invalid", "This id of a session is in use; choose another.")
        if sum(session.caller.tenant == caller.tenant for session in self._open.values()) >= MOST_PER_TENANT:
            raise ApiError(
                "Rejected", f"{MOST_PER_TENANT} sessions of your tenant are open; close one of them first."
            )
        try:
            reader, writer = await self._dial(entrance.engine, entrance.instance)
        except AgentUnreachable:
            raise ApiError("ServiceUnavailable", _AWAY, 503) from None
        self._open[wanted.session] = OpenSession(wanted.session, caller, reader, writer, time.monotonic())
        writer.write(encode([wanted]))
        self._look_later()

    def find(self, caller: Caller, session_id: str) -> OpenSession | None:
        """A session of this very key; to any other it does not exist."""
        session = self._open.get(session_id)
        if session is None or session.caller != caller:
            return None
        session.heard_s = time.monotonic()
        return session

    def end(self, session: OpenSession) -> None:
        """Hang up: the agent's side then ends the command."""
        self._open.pop(session.id, None)
        # Not close(), which waits until input is taken that a command may never read.
        session.writer.transport.abort()

    def check_key(self, session: OpenSession) -> None:
        """End a session whose key was revoked, or has other rights by now, and refuse it."""
        caller = session.caller
        key = self._find_key(caller.access_key_id)
        if key is None or Caller.of(key) != caller:
            if session.id in self._open:
                log.info(
                    "exec: session %s ends, because its key %s is revoked", session.id, caller.access_key_id
                )
                self.end(session)
            raise unrecognized_client()

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._looking = None
        now = time.monotonic()
        for session in list(self._open.values()):
            if now - session.heard_s > SILENT_S:
                self.end(session)
                continue
            with contextlib.suppress(ApiError):
                self.check_key(session)
        if self._open:
            self._look_later()


class Execs:
    """The handlers, over the control loop."""

    def __init__(self, loop: TenantGateway, sessions: ExecSessions) -> None:
        self._loop = loop
        self._sessions = sessions

    async def start(self, call: Call) -> dict[str, Any]:
        """Begin a session: a command, or a shell, inside a running job."""
        if call.caller.ends_at is not None:
            raise AccessDeniedError(
                "A session of the page cannot enter a job; use `windfall exec` with a key."
            )
        job_id, wanted = JobId(needed_text(call, "jobId")), wanted_command(call)
        entrance: Entrance | None = await self._loop.inspect(_Running(job_id))
        if entrance is None:
            raise await self._not_running(job_id)
        _check_rights(call.caller, entrance.submitter, job_id)
        whole = Exec(**wanted, token=entrance.token)
        await self._sessions.begin(call.caller, entrance, whole)
        # The first word alone: arguments may hold what nobody else should read.
        word = whole.command[0][:100] if whole.command else "a shell"
        user = f" as {call.caller.user}" if call.caller.user is not None else ""
        log.info(
            "exec: key %s (tenant %s%s) runs %r in job %s (%s), session %s",
            call.caller.access_key_id,
            call.caller.tenant,
            user,
            word,
            job_id,
            entrance.name,
            whole.session,
        )
        return {"session": whole.session}

    async def read(self, call: Call) -> Response:
        """What has come over a session since `position`, as its bytes; waits for some if there are none."""
        session = await self._session(call)
        position, wait_s = needed_count(call, "position"), call.params.get("waitS", WAIT_MOST_S)
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= WAIT_MOST_S:
            raise ApiError("Invalid", f"waitS must be seconds between 0 and {WAIT_MOST_S:g}.")
        async with session.reading:
            if position == session.fetched + len(session.answer):
                session.fetched, session.answer = position, await _more(session, wait_s)
            elif position != session.fetched:
                raise ApiError(
                    "Invalid", f"position must be {session.fetched}, or that of the last answer's end."
                )
        self._sessions.check_key(session)  # It may have been revoked while this waited.
        session.heard_s = time.monotonic()
        return Response(200, b"application/octet-stream", session.answer)

    async def write(self, call: Call) -> dict[str, Any]:
        """Hand over input from `position` on, its end, or the size of the terminal; says how much was taken."""
        session = await self._session(call)
        position, content = needed_count(call, "position"), input_bytes(call)
        rows, columns = call.params.get("rows"), call.params.get("columns")
        async with session.writing:
            if position > session.written:
                raise ApiError("Invalid", f"position must be {session.written} at most.")
            if rows is not None or columns is not None:
                size = window(terminal_size(rows, "rows"), terminal_size(columns, "columns"))
                if session.takes_input:
                    session.writer.write(size)
            await _take_input(session, content[session.written - position :])
            if call.params.get("end") is True and position + len(content) == session.written:
                if not session.input_ended:
                    session.writer.write(frame(INPUT_END))
                session.input_ended = True
        return {"position": session.written}

    async def end(self, call: Call) -> dict[str, Any]:
        """End a session with its processes; one that is over already is none."""
        session = self._sessions.find(call.caller, needed_text(call, "session"))
        if session is None:
            await self._loop.inspect(_nothing)
        else:
            self._sessions.end(session)
        return {}

    async def _session(self, call: Call) -> OpenSession:
        session = self._sessions.find(call.caller, needed_text(call, "session"))
        if session is None:
            await self._loop.inspect(_nothing)  # Another daemon may have it, which leads.
            raise ApiError(
                "NotFound",
                "There is no such session (any more): the daemon was started again, or did not hear of its client for"
                f" {SILENT_S:.0f} seconds. The job goes on; run `windfall exec` again.",
                404,
            )
        return session

    async def _not_running(self, job_id: JobId) -> ApiError:
        job: Job | None = await self._loop.read(lambda store: found_job(store, job_id))
        if job is None:
            if await self._loop.read(lambda store: store.service_jobs([job_id])):
                return ApiError(
                    "Rejected", f"{job_id} is a service job; `windfall why {job_id}` names its training job."
                )
            return no_such_job(job_id)
        if job.is_array:
            return ApiError(
                "Rejected", f"{job_id} is an array, whose children run; name one, such as {job_id}:0."
            )
        if job.finished:
            return ApiError(
                "Rejected",
                f"{job_id} has ended ({job.state}); `windfall logs {job_id}` shows its output, and"
                f" `windfall get {job_id}` fetches its files.",
            )
        return ApiError(
            "Rejected", f"{job_id} does not run yet, it is {job.state}; see `windfall why {job_id}`."
        )


class _Running:
    """Asks the core for a job that runs, or for the node of one."""

    def __init__(self, job_id: JobId) -> None:
        self._id = job_id

    def __call__(self, state: State, _: Offers, __: int) -> Entrance | None:
        job = state.jobs.get(self._id)
        gang, number = split_node(self._id)
        if job is None and number is not None and gang in state.jobs and state.jobs[gang].node == number:
            job = state.jobs[gang]  # The main node is the job itself.
        attempt = None if job is None else job.attempt
        if job is None or attempt is None or job.state is not JobState.RUNNING:
            return None
        if attempt.token not in state.attempts:
            return None  # It is another tenant's, or its place is gone.
        environment = state.environments.get(attempt.environment)
        engine = None if environment is None else environment.engine
        return Entrance(
            attempt.token, engine, attempt.instance, job.submission.name, job.submission.submitter
        )


def _nothing(_: State, __: Offers, ___: int) -> None:
    """A question whose answer is that this daemon leads."""


def _check_rights(caller: Caller, owner: Submitter, job_id: JobId) -> None:
    """Let a key in that could have submitted the job: inside, it has the job's user and all that the job may open."""
    if caller.role is Role.ADMIN:
        return
    if owner.is_admin:
        raise ApiError(
            "AccessDeniedException",
            f"{job_id} was submitted with an admin key and has its rights, so only an admin key may enter it.",
            403,
        )
    if owner.user != caller.user:
        whose = (
            f"the account {owner.user}"
            if owner.user is not None
            else "an account that your key is not mapped to"
        )
        raise ApiError(
            "AccessDeniedException",
            f"{job_id} runs as {whose}; only a key that is mapped to the same account may enter it.",
            403,
        )


async def _more(session: OpenSession, wait_s: float) -> bytes:
    """The next bytes of a session, none if none come in time; after its end, that it was cut off if it was."""
    try:
        async with asyncio.timeout(wait_s):
            content = await session.reader.read(_ANSWER_BYTES)
    except TimeoutError:
        return b""
    except OSError:
        content = b""
    # A client that knows of the end does not look at this.
    return content or ended(None, _CUT_OFF if session.fetched or session.answer else _NOT_TAKEN)


async def _take_input(session: OpenSession, content: bytes) -> None:
    """Pass input on, unless too much of what came before waits; then some time is given to it first."""
    for part in (content[at : at + MOST_BYTES] for at in range(0, len(content), MOST_BYTES)):
        try:
            async with asyncio.timeout(WAIT_MOST_S):
                await session.writer.drain()
        except TimeoutError:
            return
        except OSError:
            session.written += len(part)  # There is nobody who could read it.
            continue
        if session.takes_input:
            session.writer.write(frame(INPUT, part))
            session.written += len(part)
