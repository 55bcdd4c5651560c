"""The way to the steward for one attempt: object storage that another process opens, with rights that this one lacks.

Decides how content travels: in the packet when it is short, through memory or a pipe otherwise, and straight into a
file that is to be filled. A steward that is away is worth another try, like a store that is away. Must not know what is
stored.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from windfall.agent.steward.messages import (
    INLINE_BYTES,
    MOST_FILES,
    NAMES_BYTES,
    WHOLE_BYTES,
    Answer,
    AskCredential,
    AskWriters,
    Copy,
    Delete,
    Done,
    EndPorters,
    Entries,
    Failed,
    Feed,
    Get,
    Head,
    Hello,
    List,
    NotAdmitted,
    Pour,
    Poured,
    Put,
    Request,
    Writers,
    answers,
    encode,
)
from windfall.agent.steward.packets import new_socket, receive, send
from windfall.objects import errors
from windfall.objects.errors import BadUri, ObjectsError, Unreachable
from windfall.objects.port import Content, Entry, LocalPath, ObjectStore, checked_key

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25
_PATIENCE_S = 10.0
_MOST_IDLE = 8
_PIPE_BYTES = 1 << 20
_FCNTL_SET_PIPE_BYTES = 1031
A = TypeVar("A", bound=Answer)


class Door:
    """The connections of one attempt to the steward; any thread may use it."""

    def __init__(self, path: str, token: str, secret: str, patience_s: float = _PATIENCE_S) -> None:
        self._hello = encode(Hello(token, secret))
        self._path = path
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._idle: list[_Line] = []
        self._closed = False

    def open(self, uri: str) -> ObjectStore:
        """Return the objects below a URI; nothing is asked yet."""
        return StewardObjects(uri.rstrip("/"), self)

    def start_feeder(self, order: bytes) -> None:
        """Have a feeder started for the attempt."""
        with self.line() as line:
            line.fill(order)
            line.ask(Feed(len(order)), Done, line.memory)

    def end_porters(self) -> None:
        """Have the attempt's feeders and other porters killed."""
        with self.line() as line:
            line.ask(EndPorters(), Done)

    def credential(self) -> str | None:
        """Return the credential for Git that the attempt's code may be fetched with."""
        with self.line() as line:
            found = line.ask(AskCredential(), Done).content
        return found.decode() if found is not None else None

    def writers(self, files: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bool]:
        """Return those of some files (device, inode) that are open for writing, and whether they are only added to."""
        found: dict[tuple[int, int], bool] = {}
        with self.line() as line:
            for first in range(0, len(files), MOST_FILES):
                answer = line.ask(AskWriters(tuple(files[first : first + MOST_FILES])), Writers)
                found |= {(device, inode): appends for device, inode, appends in answer.files}
        return found

    def close(self) -> None:
        """Keep no connection open; one that is in use is closed after it."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for line in idle:
            line.close()

    @contextlib.contextmanager
    def line(self) -> Iterator[_Line]:
        """Have a connection for one request; it is kept for the next one if that ends well."""
        line = self._take()
        try:
            yield line
        except ObjectsError as error:
            if isinstance(error, Unreachable) and line.is_broken:
                line.close()
            else:
                self._give_back(line)
            raise
        except BaseException:
            line.close()
            raise
        self._give_back(line)

    def _take(self) -> _Line:
        while True:
            with self._lock:
                line = self._idle.pop() if self._idle else None
            if line is None:
                return self._connect()
            if not line.has_ended:
                return line
            line.close()

    def _give_back(self, line: _Line) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE and not self._closed:
                self._idle.append(line)
                return
        line.close()

    def _connect(self) -> _Line:
        """Wait for a steward that is starting, or that does not know the attempt yet."""
        until = time.monotonic() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            line = _Line(new_socket())
            try:
                line.socket.connect(self._path)
                send(line.socket, self._hello)
                content, _ = receive(line.socket)
                if content and isinstance(answers.decode(content), Done):
                    return line
                problem = "it knows nothing of this attempt" if content else "it has ended"
            except OSError as error:
                problem = error.strerror or str(error)
            except BaseException:
                line.close()
                raise
            line.close()
            if time.monotonic() + pause_s >= until:
                raise Unreachable(f"the steward, which opens object storage, does not answer: {problem}")
            time.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)


class _Line:
    """One connection, used by one thread at a time, and memory to move content through."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.is_broken = False
        self._memory: int | None = None

    @property
    def memory(self) -> int:
        """A file in memory that the steward may read and write."""
        if self._memory is None:
            self._memory = os.memfd_create("windfall-courier", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            # So that the steward can read it where it is: what it has mapped cannot go away.
            fcntl.fcntl(self._memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return self._memory

    @property
    def has_ended(self) -> bool:
        """Whether the steward has closed it since it was used."""
        try:
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True  # Nothing is due, so it cannot be an answer.

    def ask(self, request: Request, kind: type[A], descriptor: int | None = None) -> A:
        """Send a request and return its answer; the errors are those of object storage."""
        self.tell(request, descriptor)
        return self.hear(kind)

    def tell(self, request: Request, descriptor: int | None = None) -> None:
        """Send a packet."""
        try:
            content = encode(request)
        except (UnicodeEncodeError, msgspec.EncodeError) as error:
            raise BadUri(f"object names must be UTF-8: {error}") from None
        try:
            send(self.socket, content, descriptor)
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from None

    def hear(self, kind: type[A]) -> A:
        """Receive an answer of this kind."""
        try:
            content, _ = receive(self.socket)
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from None
        if not content:
            raise self._broken("it has ended")
        answer = answers.decode(content)
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, NotAdmitted):
            raise self._broken("it knows nothing of this attempt any more")
        if isinstance(answer, Failed):
            found = getattr(errors, answer.kind, ObjectsError)
            raise found(answer.text)
        raise self._broken(f"it has said {type(answer).__name__}")

    def fill(self, content: Content) -> None:
        """Put content into the memory."""
        view, done = memoryview(content).cast("B"), 0
        while done < len(view):
            done += os.pwrite(self.memory, view[done:], done)

    def filled(self, size: int) -> bytes:
        """Return what the steward has put into the memory."""
        content = os.pread(self.memory, size, 0)
        while len(content) < size and (more := os.pread(self.memory, size - len(content), len(content))):
            content += more
        if len(content) < size:
            raise self._broken(f"it has sent {len(content)} of {size} bytes")
        return content

    def close(self) -> None:
        self.socket.close()
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def _broken(self, why: str) -> Unreachable:
        self.is_broken = True
        return Unreachable(f"the steward, which opens object storage, does not answer: {why}")


class StewardObjects:
    """Objects below one prefix that the steward has opened."""

    def __init__(self, uri: str, door: Door) -> None:
        self.uri = uri
        self._door = door

    def get(self, key: str) -> bytes:
        """The whole object."""
        with self._door.line() as line:
            return line.filled(line.ask(Get(self.uri, checked_key(key)), Done, line.memory).size)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of an object."""
        with self._door.line() as line:
            request = Get(self.uri, checked_key(key), start, max(start, end))
            done = line.ask(request, Done, line.memory)
            return done.content if done.content is not None else line.filled(done.size)

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        """Write one object."""
        checked_key(key)
        size = memoryview(content).nbytes
        if size > WHOLE_BYTES and not create_only:
            self.put_pieces(key, [bytes(content)])
            return
        with self._door.line() as line:
            if size <= INLINE_BYTES:
                line.ask(Put(self.uri, key, create_only, bytes(content), size), Done)
                return
            line.fill(content)
            line.ask(Put(self.uri, key, create_only, None, size), Done, line.memory)

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write one object from pieces as they come."""
        checked_key(key)
        with self._door.line() as line:
            ours = _pour(line, Pour(self.uri, key))
            whole = False
            try:
                # A steward that stops reading has an answer: it says why.
                with contextlib.suppress(BrokenPipeError), open(ours, "wb", buffering=0) as pipe:
                    for piece in pieces:
                        view = memoryview(piece)
                        while view:
                            view = view[pipe.write(view) :]
                    whole = True
            except BaseException:
                with contextlib.suppress(ObjectsError):
                    line.ask(Poured(whole=False), Done)
                raise
            line.ask(Poured(whole), Done)

    def put_file(self, key: str, path: LocalPath) -> int:
        """Write a local file."""
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.put_pieces(key, iter(lambda: file.read(_PIPE_BYTES), b""))
        return size

    def get_file(self, key: str, path: LocalPath) -> int:
        """Bring an object to a local path."""
        target = os.fspath(path)
        partial = f"{target}.{secrets.token_hex(4)}.part"
        try:
            with open(partial, "xb") as file:
                size = self.get_into(key, file.fileno())
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        return size

    def get_into(self, key: str, descriptor: int) -> int:
        """Bring an object into an open file."""
        with self._door.line() as line:
            return line.ask(Get(self.uri, checked_key(key)), Done, descriptor).size

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix of whole segments."""
        if prefix.strip("/"):
            checked_key(prefix.strip("/"))
        with self._door.line() as line:
            line.tell(List(self.uri, prefix))
            rows: list[Entry] = []
            while True:
                part = line.hear(Entries)
                rows += [Entry(*row) for row in part.rows]
                if part.last:
                    return iter(rows)

    def head(self, key: str) -> Entry | None:
        """What is known of one object."""
        with self._door.line() as line:
            found = line.ask(Head(self.uri, checked_key(key)), Entries)
        return Entry(*found.rows[0]) if found.rows else None

    def copy(self, source: str, target: str) -> None:
        """A second object with the same content."""
        with self._door.line() as line:
            line.ask(Copy(self.uri, checked_key(source), checked_key(target)), Done)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, as many at a time as a packet can name."""
        batch: list[str] = []
        length = 0
        for key in keys:
            cost = 4 * len(checked_key(key)) + 8
            if batch and length + cost > NAMES_BYTES:
                self._delete(batch)
                batch, length = [], 0
            batch.append(key)
            length += cost
        if batch:
            self._delete(batch)

    def _delete(self, keys: Iterable[str]) -> None:
        with self._door.line() as line:
            line.ask(Delete(self.uri, tuple(keys)), Done)


def _pour(line: _Line, request: Pour) -> int:
    """Open a pipe to the steward; return its end to write into."""
    theirs, ours = os.pipe2(os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.fcntl(ours, _FCNTL_SET_PIPE_BYTES, _PIPE_BYTES)
        line.tell(request, theirs)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return ours
