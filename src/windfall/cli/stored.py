"""What a job has in object storage, read through the daemon: the client needs no keys of the storage.

Decides how bytes are asked for: many small objects in one request, large ones in ranges, and again after a pause while
the daemon or its storage is away. Must not know what the bytes mean.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from windfall.backoff import Backoff, Pauses
from windfall.cli.client import Client, connect
from windfall.cli.errors import CliError, NoDaemon, RequestRefused
from windfall.cli.notes import note
from windfall.objects.errors import NotFound
from windfall.objects.port import Entry

T = TypeVar("T")

#: What the daemon answers at once.
READ_BYTES, READS_MAX = 1 << 20, 256
#: Objects up to this length are asked for together.
SMALL_BYTES = 64 << 10
#: How much of them is kept for those who ask again.
_KEPT_BYTES = 64 << 20
#: How long a daemon, or its storage, is waited for, and how often it is asked meanwhile.
PATIENCE_S = 120.0
_AGAIN = Pauses(0.25, 5.0)
_AWAY = "StorageUnavailable"


class Connections:
    """One connection to the daemon for each thread; what fails for the moment is asked again."""

    def __init__(self, data: Path | None, patience_s: float | None = None) -> None:
        self._data = data
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[Client] = []
        self._said = ""
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Wait for nobody any more: who is at the terminal has had enough."""
        self._stopped.set()

    def ask(self, question: Callable[[Client], T]) -> T:
        """Ask the daemon; NoDaemon or RequestRefused when it has been away, or its storage has, for too long."""
        backoff = Backoff(_AGAIN, patience_s=self._patience_s, clock=time.monotonic)
        while True:
            try:
                answer = question(self._client())
            except (NoDaemon, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.code != _AWAY:
                    raise
                if self._stopped.is_set() or backoff.gives_up():
                    raise
                self._say(f"{error}; trying again")
                self._local.client = None
                self._stopped.wait(backoff.failed())
            else:
                self._said = ""
                return answer

    def close(self) -> None:
        """Close all connections."""
        for client in self._open:
            client.close()

    def _client(self) -> Client:
        client: Client | None = getattr(self._local, "client", None)
        if client is None:
            # A daemon that was started again may have another address.
            client = self._local.client = connect(self._data)
            with self._lock:
                self._open.append(client)
        return client

    def _say(self, text: str) -> None:
        with self._lock:
            if text == self._said:
                return
            self._said = text
        note(text)


class StoredPart:
    """The objects of one part of a job's files, for reading alone; calls may come from any thread."""

    def __init__(
        self,
        connections: Connections,
        job_id: str,
        part: dict[str, Any],
        received: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        """`part` names it as the daemon's operations do; `received` hears how many bytes have come."""
        self.uri = job_id
        self._connections = connections
        self._asked = {"jobId": job_id, **part}
        self._received = received
        self._bytes: dict[str, int] = {}
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._batches: dict[str, _Batch] = {}
        self._lock = threading.Lock()

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix."""
        for line in self._connections.ask(self._listed):
            key, size, changed_at = line
            self._bytes[key] = size
            if not prefix or key.startswith(f"{prefix}/"):
                yield Entry(key, size, changed_at)

    def _listed(self, client: Client) -> Sequence[Any]:
        lines = [json.loads(line) for line in client.own_bytes("ListStored", **self._asked).splitlines()]
        last = lines.pop() if lines and isinstance(lines[-1], dict) else {}
        if "error" in last:
            raise RequestRefused(_AWAY, str(last["error"]).removesuffix("."))
        if not last.get("end"):
            raise NoDaemon("the daemon ended in the middle of an answer")
        return lines

    def bytes_of(self, key: str) -> int:
        """How long an object is that a listing has shown; 0 for others."""
        return self._bytes.get(key, 0)

    def plan(self, keys: Sequence[str]) -> None:
        """Say which objects will be asked for, in which order, so that small ones come together."""
        batch = _Batch()
        for key in dict.fromkeys(keys):
            size = self._bytes.get(key, READ_BYTES)
            if size > SMALL_BYTES:
                continue
            if batch.bytes + size > READ_BYTES or len(batch.keys) == READS_MAX:
                batch = _Batch()
            batch.keys.append(key)
            batch.bytes += size
            self._batches[key] = batch

    def get(self, key: str) -> bytes:
        """A whole object that a listing has shown; NotFound where it has not, or it has gone since."""
        size = self._bytes.get(key)
        if size is None:
            raise NotFound(f"{key} is not there")
        if size > SMALL_BYTES:
            parts = [self.get_range(key, at, min(at + READ_BYTES, size)) for at in range(0, size, READ_BYTES)]
            return b"".join(parts)
        batch = self._batches.get(key)
        if batch is not None:
            with batch.lock:
                if not batch.fetched:
                    batch.fetched = True
                    self._fetch(batch.keys)
        with self._lock:
            content = self._kept.get(key)
        if content is None:
            content = self.get_range(key, 0, size)
            self._keep(key, content)
        return content

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of an object, as many as one answer holds at most."""
        return self._read([[key, start, end]])

    def _fetch(self, keys: Sequence[str]) -> None:
        """Bring many objects at once; where one is missing or too short, each is asked for by itself later."""
        wanted = [[key, 0, self._bytes[key]] for key in keys]
        try:
            content = memoryview(self._read(wanted))
        except NotFound:
            return
        if len(content) != sum(self._bytes[key] for key in keys):
            return
        for key in keys:
            size = self._bytes[key]
            self._keep(key, bytes(content[:size]))
            content = content[size:]

    def _read(self, reads: Sequence[Sequence[Any]]) -> bytes:
        try:
            content = self._connections.ask(
                lambda client: client.own_bytes("ReadStored", **self._asked, reads=reads)
            )
        except RequestRefused as refused:
            if refused.code == "NotFound":
                raise NotFound(str(refused)) from None
            raise
        self._received(len(content))
        return content

    def _keep(self, key: str, content: bytes) -> None:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = content
                self._kept_bytes += len(content)
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])


class _Batch:
    """Small objects that are asked for in one request."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.bytes = 0
        self.fetched = False
        self.lock = threading.Lock()


def stored_files(client: Client, job_id: str) -> dict[str, Any]:
    """What of a job can be fetched."""
    try:
        return client.own("StoredFiles", jobId=job_id)
    except RequestRefused as refused:
        if refused.code == "NotFound":
            raise CliError(str(refused)) from None
        raise
