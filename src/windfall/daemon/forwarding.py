"""Forwards a request to the leading daemon, byte for byte, so that its signature stays valid there.

Decides how long to wait for a change of the leader, and which files only the leader has. Only what may be sent twice is
forwarded. Must not know what a request means.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from windfall.advisor.samples import Recording, Sample, SampledGpu
from windfall.aws_api.protocol.errors import AnsweredElsewhereError
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.control.ports import AttemptFiles, LogFile

#: How long to wait for a leader to be known, and for its answer.
PATIENCE_S = 15.0
ANSWER_S = 10.0
AGAIN_S = 0.1
#: A request is forwarded only once: two daemons could each take the other for the leader.
FORWARDED = b"x-windfall-forwarded"

#: What the next server sets itself.
_NOT_COPIED = (b"connection", b"content-length", b"transfer-encoding", b"expect")
_COPIED_BACK = ("x-amz", "smithy-", "www-authenticate")


class Forwarding:
    """Forwards requests to the leader."""

    def __init__(self, leader: Callable[[], str | None]) -> None:
        """`leader` returns the address of the current leader; None while none is known."""
        self._leader = leader

    async def forward(self, request: HttpRequest) -> Response | None:
        """The leader's answer, or None if no leader answered in time."""
        if FORWARDED in request.headers:
            return None
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if (leader := self._leader()) is not None:
                try:
                    return await asyncio.to_thread(_exchange, leader, request)
                except (OSError, http.client.HTTPException):
                    pass  # It may have just ended.
            await asyncio.sleep(AGAIN_S)
        return None


class LeadersFiles:
    """The port AttemptFiles of a daemon without the leader's directory: what attempts leave is there alone."""

    def __init__(self, files: AttemptFiles, leads: Callable[[], bool]) -> None:
        self._files, self._leads = files, leads

    def log(self, task_id: str, /) -> LogFile:
        """An attempt's log."""
        return self._own().log(task_id)

    def recording(self, task_id: str, /) -> Recording | None:
        """All samples of an attempt."""
        return self._own().recording(task_id)

    def latest(self, task_id: str, /) -> Sample | None:
        """The newest sample of an attempt."""
        return self._own().latest(task_id)

    def machine_head(self, machine: str | None = None, /) -> tuple[tuple[SampledGpu, ...], Sample] | None:
        """The newest sample of a machine."""
        return self._own().machine_head(machine)

    def remove(self, task_id: str, /, *, samples: bool = True) -> None:
        """Remove what this directory has of an attempt, whether this daemon leads or not."""
        self._files.remove(task_id, samples=samples)

    def _own(self) -> AttemptFiles:
        if not self._leads():
            raise AnsweredElsewhereError
        return self._files


def _exchange(leader: str, request: HttpRequest) -> Response:
    parts = urlsplit(leader)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)
    try:
        target = request.path + (f"?{request.query}" if request.query else "")
        connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            if name not in _NOT_COPIED:
                connection.putheader(name.decode("latin-1"), value)
        connection.putheader(FORWARDED.decode(), "1")
        connection.putheader("content-length", str(len(request.body)))
        connection.endheaders(request.body)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 503:
            raise http.client.HTTPException("it does not lead either")
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in answer.getheaders()
            if name.lower().startswith(_COPIED_BACK) and name.lower() != "x-amzn-requestid"
        ]
        kind = answer.getheader("content-type", "application/json").encode("latin-1")
        return Response(answer.status, kind, body, tuple(headers))
    finally:
        connection.close()
