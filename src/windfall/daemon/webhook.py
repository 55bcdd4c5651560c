"""A webhook that events are posted to, over a few connections at once; a job's events always use the same one.

An event is delivered when the answer is 2xx. Must not know what events say, or when one is tried again.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import stat
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from windfall.daemon.event_sinks import Event, Outcome

#: An event counts as not delivered if the receiver takes longer than this.
TIMEOUT_S = 10.0
#: How many events of different jobs are under way at once: a distant receiver has latency, not low throughput.
CONNECTIONS = 8
#: How much of an answer is read, so that the connection can be used again.
_ANSWER_MAX = 65_536
#: Answers below 500 that concern all events, not one.
_ABOUT_ALL = frozenset({401, 403, 404, 429})
_STOPPING = "the daemon is stopping"


class Webhook:
    """Posts each event."""

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        parts = urlsplit(url)
        self._token_file = token_file
        self._connections = [WebhookConnection(parts) for _ in range(CONNECTIONS)]
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="webhook")

    def deliver(self, events: Sequence[Event]) -> Outcome:
        """Post them, each job's in order."""
        headers = {"Content-Type": "application/json"}
        if self._token_file is not None:
            try:
                # Read for each page, so that a new token needs no restart.
                headers["Authorization"] = f"Bearer {read_token(self._token_file)}"
            except (OSError, UnicodeDecodeError) as error:
                return Outcome(trouble=f"the token cannot be read: {_words(error)}")
        shares: dict[int, list[Event]] = {}
        for event in events:
            shares.setdefault(zlib.crc32(event.subject.encode()) % CONNECTIONS, []).append(event)
        work = [(self._connections[number], share) for number, share in shares.items()]
        try:
            outcomes = list(self._threads.map(lambda it: it[0].deliver(it[1], headers), work))
        except (RuntimeError, CancelledError):  # closed meanwhile
            return Outcome(trouble=_STOPPING)
        troubles = [outcome.trouble for outcome in outcomes if outcome.trouble is not None]
        return Outcome(
            [event_id for outcome in outcomes for event_id in outcome.delivered],
            troubles[0] if troubles else None,
        )

    def close(self) -> None:
        """Abort what is under way."""
        for connection in self._connections:
            connection.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class WebhookConnection:
    """One connection."""

    def __init__(self, url: SplitResult) -> None:
        self._url = url
        #: For logs: anything after the host may be a secret.
        self._where = f"{url.scheme}://{url.netloc}"
        #: Closed only by the thread that uses it, or by `close` when none does.
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()
        self._busy = False
        self._closed = threading.Event()

    def deliver(self, events: Sequence[Event], headers: Mapping[str, str]) -> Outcome:
        """Post them in order; a refused one holds back only events of its own subject."""
        with self._lock:
            if self._closed.is_set():
                return Outcome(trouble=_STOPPING)
            self._busy = True
        try:
            return self._deliver(events, headers)
        finally:
            with self._lock:
                self._busy = False
            if self._closed.is_set():
                self._drop()

    def close(self) -> None:
        """Abort what is under way; called from another thread."""
        with self._lock:
            self._closed.set()
            if not self._busy:
                self._drop()
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer

    def _deliver(self, events: Sequence[Event], headers: Mapping[str, str]) -> Outcome:
        delivered: list[str] = []
        held_back: set[str] = set()
        trouble = None
        try:
            for event in events:
                if event.subject in held_back:
                    continue
                status = self._post(event.body, headers)
                if 200 <= status < 300:
                    delivered.append(event.id)
                    continue
                held_back.add(event.subject)
                trouble = f"{self._where} answered {status} to event {event.id}"
                if status >= 500 or status in _ABOUT_ALL:
                    break
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            trouble = f"{self._where} does not answer: {_words(error)}"
        return Outcome(delivered, trouble)

    def _post(self, body: bytes, headers: Mapping[str, str]) -> int:
        reused = self._connection is not None
        try:
            return self._post_once(body, headers)
        except (ConnectionError, http.client.HTTPException):
            self._drop()
            if not reused or self._closed.is_set():
                raise
        # The receiver had closed an idle connection.
        return self._post_once(body, headers)

    def _post_once(self, body: bytes, headers: Mapping[str, str]) -> int:
        connection = self._connection = self._connection or self._connect()
        if connection.sock is None:
            connection.connect()
        if self._closed.is_set():  # Checked after connecting: from then on `close` finds the socket.
            raise ConnectionAbortedError(_STOPPING)
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        connection.request("POST", path, body, headers)
        with connection.getresponse() as answer:
            is_whole = len(answer.read(_ANSWER_MAX)) < _ANSWER_MAX
        if not is_whole:
            self._drop()
        return answer.status

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()


def read_token(path: Path) -> str:
    """The bearer token in a file that only its owner can read; OSError says what is wrong with it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise PermissionError(1, f"{path} can be read by others (mode {mode:o}); run chmod 600 on it")
    token = path.read_text().strip()
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise OSError(22, f"{path} must contain one ASCII token without white space")
    return token


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
