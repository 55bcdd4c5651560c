"""A client of the API that costs next to nothing: signed requests over keep-alive connections.

boto3 spends about 1.5 ms of processor time on a call, more than the daemon does; on a machine with few cores it
would measure itself. Requests are signed by Windfall's own `sign`, beforehand where a rate is measured.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from windfall.aws_api.protocol.sigv4 import sign

REGION = "us-east-1"
#: The daemon hangs up on connections that are idle for five seconds; one that was idle for longer is made anew.
IDLE_S = 2.0


class CallFailed(Exception):
    """The daemon refused a call; the text is its answer."""


@dataclass(frozen=True, slots=True)
class Account:
    """Where a daemon listens and with which key to speak to it."""

    url: str
    access_key_id: str
    secret_access_key: str

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 80

    def request(self, operation: str, params: dict[str, Any]) -> bytes:
        """A signed request of AWS Batch, ready to be sent within the next five minutes."""
        path = f"/v1/{operation.lower()}"
        body = json.dumps(params).encode()
        headers = sign(
            method="POST",
            url=self.url + path,
            headers={"content-type": "application/json"},
            body=body,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            region=REGION,
            service="batch",
            now=time.time(),
        )
        lines = [f"POST {path} HTTP/1.1", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Connection:
    """One keep-alive connection with one request at a time."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self.account.address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._used_at = time.monotonic()

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Call an operation and answer its output; raises CallFailed."""
        if time.monotonic() - self._used_at > IDLE_S:
            self.close()
            self._open()
        self.send(self.account.request(operation, params))
        while (answer := self.receive()) is None:
            pass
        return understood(answer)

    def fileno(self) -> int:
        """For select and its like."""
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Send one request."""
        self._used_at = time.monotonic()
        self._socket.sendall(request)

    def receive(self) -> tuple[int, bytes] | None:
        """Read once; the answer is (status, body) when the response is complete."""
        chunk = self._socket.recv(1 << 16)
        if not chunk:
            raise CallFailed("the daemon closed the connection")
        self._buffer += chunk
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lines = head.lower().split(b"\r\n")
        length = next(int(it.partition(b":")[2]) for it in lines if it.startswith(b"content-length:"))
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        return int(lines[0].split()[1]), rest[:length]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def understood(answer: tuple[int, bytes]) -> dict[str, Any]:
    """The output of a call, or CallFailed."""
    status, body = answer
    if status != 200:
        raise CallFailed(f"{status}: {body.decode(errors='replace')}")
    output: dict[str, Any] = json.loads(body)
    return output


def send_all(account: Account, requests: Sequence[bytes], connections: int) -> list[dict[str, Any]]:
    """Send prepared requests over so many connections, one at a time each; answers as they complete."""
    answers: list[tuple[int, bytes]] = []
    waiting = iter(requests)
    poll = select.epoll()
    lines = {}
    for _ in range(min(connections, len(requests))):
        connection = Connection(account)
        lines[connection.fileno()] = connection
        poll.register(connection.fileno(), select.EPOLLIN)
    for connection in lines.values():
        connection.send(next(waiting))
    while len(answers) < len(requests):
        for fd, _ in poll.poll():
            answer = lines[fd].receive()
            if answer is None:
                continue
            answers.append(answer)
            request = next(waiting, None)
            if request is not None:
                lines[fd].send(request)
    for connection in lines.values():
        connection.close()
    poll.close()
    return [understood(answer) for answer in answers]
