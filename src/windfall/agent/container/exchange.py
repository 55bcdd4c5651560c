"""HTTP/1.1 over the unix socket of a container engine, as much of it as that takes: one request on a connection.

Decides how an answer's body is cut out of the stream. Not http.client: with what that imports a keeper would be twice
as large and start thirty milliseconds later. Must not know what is asked.
"""

from __future__ import annotations

import json
import socket

from windfall.agent.container.errors import EngineRefused, EngineTimeout, EngineUnreachable

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_PART_BYTES = 1 << 16
_MOST_HEAD_BYTES = 1 << 16
_HEX_DIGITS = b"0123456789abcdefABCDEF"


def _is_number(text: str) -> bool:
    """Whether it is one that HTTP could mean: isdigit() also takes signs that int() does not."""
    return text.isdecimal() and len(text) < 20


class Body:
    """Takes what arrives and gives what of it is the body."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "")
        #: Bytes to come, of the body or of the present chunk; None until somebody says.
        self._left: int | None = int(length) if _is_number(length) and not self._chunked else None
        self._to_the_end = not self._chunked and self._left is None
        self._raw = b""
        self._after_chunk = False
        self.ended = self._left == 0

    def feed(self, raw: bytes) -> bytes:
        """Return the next part of the body; `ended` tells whether it was the last."""
        if self._to_the_end:
            return raw
        if not self._chunked:
            assert self._left is not None
            part = raw[: self._left]
            self._left -= len(part)
            self.ended = self._left == 0
            return part
        self._raw += raw
        parts = []
        while not self.ended and self._next_chunk():
            assert self._left is not None
            part = self._raw[: self._left]
            self._raw = self._raw[len(part) :]
            self._left -= len(part)
            parts.append(part)
            if self._left:
                break
            self._left, self._after_chunk = None, True
        return b"".join(parts)

    def close(self) -> bool:
        """The line has ended; return whether the body was complete then."""
        self.ended = self.ended or self._to_the_end
        return self.ended

    def _next_chunk(self) -> bool:
        """Read the size of the next chunk if it is there; whether something of a chunk can be taken now."""
        if self._left is not None:
            return bool(self._raw)
        start = 2 if self._after_chunk else 0
        end = self._raw.find(b"\n", start)
        if end < 0:
            return False
        size = self._raw[start:end].split(b";")[0].strip() or b"0"
        if not all(digit in _HEX_DIGITS for digit in size):
            raise EngineUnreachable("the process at the container engine's socket is not a container engine")
        self._left = int(size, 16)
        self._raw = self._raw[end + 1 :]
        if self._left == 0:
            self.ended = True
        return bool(self._raw) and not self.ended


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        path: str,
        method: str,
        target: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._what = f"{method} {target.split('?', maxsplit=1)[0]}"
        self._timeout_s = timeout_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: engine", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append("Content-Type: application/json")
        if content or method == "POST":
            lines.append(f"Content-Length: {len(content)}")
        try:
            self._connect(path)
            self._send("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
            self.status, self.headers, rest = self._head()
        except BaseException:
            self._socket.close()
            raise
        self._body = Body(self.headers)
        try:
            self._waiting = self._body.feed(rest) if rest else b""
        except EngineUnreachable:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return what to select on."""
        return self._socket.fileno()

    @property
    def has_part(self) -> bool:
        """Whether `receive` will not wait."""
        return bool(self._waiting) or self._body.ended

    @property
    def ended(self) -> bool:
        """Whether the body has been received completely."""
        return self._body.ended and not self._waiting

    def receive(self) -> bytes:
        """Return the next part of the body, perhaps none; EngineUnreachable when the line broke."""
        if self._waiting or self._body.ended:
            part, self._waiting = self._waiting, b""
            return part
        raw = self._receive()
        if raw:
            return self._body.feed(raw)
        if not self._body.close():
            raise EngineUnreachable(f"{self._what}: the container engine's answer is incomplete")
        return b""

    def read(self) -> bytes:
        """Return the whole body and close."""
        try:
            parts = []
            while not self.ended:
                parts.append(self.receive())
            return b"".join(parts)
        finally:
            self.close()

    def settled(self) -> Exchange:
        """Return itself; EngineRefused when the engine said no."""
        if self.status < 400:
            return self
        text = self.read().decode(errors="replace")
        try:
            message = str(json.loads(text)["message"])
        except (ValueError, LookupError, TypeError):
            message = text.strip() or f"status {self.status}"
        raise EngineRefused(self.status, message)

    def taken_over(self) -> tuple[socket.socket, bytes]:
        """Return the line itself, for bytes in both directions, with what has arrived after the head."""
        return self._socket, self._waiting

    def value(self) -> Any:
        """Return the body as JSON; EngineRefused when the engine said no."""
        content = self.settled().read()
        try:
            return json.loads(content) if content else None
        except ValueError:
            raise EngineUnreachable(
                f"{self._what}: the process at the socket is not a container engine"
            ) from None

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _connect(self, path: str) -> None:
        try:
            self._socket.connect(path)
        except OSError as error:
            raise EngineUnreachable(f"no container engine answers at {path}: {error.strerror}") from None

    def _send(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise EngineUnreachable(
                f"{self._what}: the container engine closed the connection: {error}"
            ) from None

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(_PART_BYTES)
        except TimeoutError:
            text = f"{self._what}: no answer of the container engine within {self._timeout_s:g} s"
            raise EngineTimeout(text) from None
        except OSError as error:
            raise EngineUnreachable(
                f"{self._what}: the container engine closed the connection: {error}"
            ) from None

    def _head(self) -> tuple[int, dict[str, str], bytes]:
        raw = b""
        while b"\r\n\r\n" not in raw:
            part = self._receive()
            if not part or len(raw) > _MOST_HEAD_BYTES:
                raise EngineUnreachable(f"{self._what}: the container engine's answer is incomplete")
            raw += part
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not _is_number(words[1]):
            raise EngineUnreachable(f"{self._what}: the process at the socket is not a container engine")
        pairs = (line.partition(":") for line in lines[1:])
        return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}, rest
