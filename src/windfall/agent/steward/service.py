"""Answers the requests of one connection: operations on object storage, within what one attempt may do.

The peer is not trusted. The agent's announcement of its attempt says what it may do; names are keys and URIs that are
checked before a store is opened; a descriptor is read or written as it is and never opened again by a name, and only if
it is memory, a pipe, or a file where attempts have theirs. Anything else ends the connection. Must not know how
connections are accepted.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Sequence

import msgspec

from windfall.agent.courier.errors import CalledOff
from windfall.agent.courier.stores import Stores
from windfall.agent.steward.messages import (
    INLINE_BYTES,
    MOST_FILES,
    NAMES_BYTES,
    WHOLE_BYTES,
    Admit,
    Answer,
    AskCredential,
    Asked,
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
    Writers,
    encode,
    requests,
)
from windfall.agent.steward.packets import BadPacket, receive, send
from windfall.agent.sync.writers import open_for_writing
from windfall.objects.errors import BadUri, ObjectsError
from windfall.objects.port import Content, ObjectStore, checked_key

_PIECE_BYTES = 1 << 20
_ORDER_BYTES = 1 << 20
_MOST_OPEN = 256
_BLOCK_BYTES = 512


class Admitted:
    """One attempt that the agent has announced, and its stores."""

    def __init__(self, admit: Admit, objects_file: str | None) -> None:
        self.admit = admit
        self.stores = Stores(objects_file, admit.storage)
        self.connections = 0
        self._open: dict[tuple[str, bool], ObjectStore] = {}
        self._lock = threading.Lock()

    def is_same(self, admit: Admit) -> bool:
        """Whether another order leaves alone what the attempt may store, and who works for it."""
        known = msgspec.structs.replace(self.admit, port=admit.port, credential=admit.credential)
        return known == admit

    def store(self, uri: str, names: Sequence[str], *, write: bool) -> ObjectStore:
        """Open a store for some of its objects; Refused where the attempt may not use one of them."""
        if not self.stores.may(uri, write=write):
            return self.stores.open_some(uri, names, write=write)
        with self._lock:
            found = self._open.get((uri, write))
            if found is None:
                if len(self._open) >= _MOST_OPEN:
                    self._open.clear()
                found = self._open[uri, write] = self.stores.open(uri, write=write)
        return found


class Porters:
    """What the steward does about the processes that work for an attempt, and for the one that fetches its code."""

    def __init__(
        self,
        start: Callable[[Admit, bytearray], None],
        end: Callable[[str], None],
        credential: Callable[[str], str | None],
    ) -> None:
        self.start, self.end = start, end
        #: Returns a credential for Git by its kept name.
        self.credential = credential


class Service:
    """One connection, from its first packet to its last."""

    def __init__(
        self,
        line: socket.socket,
        find: Callable[[str], Admitted | None],
        devices: frozenset[int],
        porters: Porters,
    ) -> None:
        self._line = line
        self._find = find
        #: The devices on which a peer's files may be: that of memory, that of attempts.
        self._devices = devices
        self._porters = porters

    def serve(self, peer_uid: int) -> None:
        """Answer until the peer has gone; BadPacket, DecodeError or OSError where it does not keep to the rules."""
        admitted = self._greet(peer_uid)
        while True:
            content, descriptor = receive(self._line)
            try:
                if not content:
                    return
                request = requests.decode(content)
                try:
                    answer = self._answer(admitted, request, descriptor)
                except CalledOff:
                    answer = NotAdmitted()
                except ObjectsError as error:
                    answer = Failed(type(error).__name__, str(error)[:INLINE_BYTES])
                send(self._line, encode(answer))
            finally:
                if descriptor is not None:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)

    def _greet(self, peer_uid: int) -> Admitted:
        content, descriptor = receive(self._line)
        if descriptor is not None:
            os.close(descriptor)
        hello = requests.decode(content)
        if not isinstance(hello, Hello):
            raise BadPacket("a connection must begin with its attempt")
        found = self._find(hello.token)
        if found is None:
            send(self._line, encode(NotAdmitted()))
            raise ConnectionAbortedError("unknown attempt")
        # Not a comparison in constant time: the secret is 256 bits long, and the uid must be right as well.
        if (peer_uid, hello.secret) != (found.admit.user.uid, found.admit.secret):
            raise BadPacket(f"a process of user {peer_uid} has asked for another attempt than its own")
        send(self._line, encode(Done()))
        return found

    def _answer(self, admitted: Admitted, request: Asked, descriptor: int | None) -> Answer:
        admitted.stores.check()
        match request:
            case Get():
                return self._get(admitted, request, self._file(descriptor, os.O_WRONLY))
            case Put():
                return self._put(admitted, request, descriptor)
            case Pour():
                return self._pour(admitted, request, descriptor)
            case List():
                return self._list(admitted, request)
            case Head():
                entry = admitted.store(request.uri, [request.key], write=False).head(checked_key(request.key))
                rows = () if entry is None else ((entry.key, entry.bytes, entry.changed_at),)
                return Entries(rows, last=True)
            case Copy():
                names = [checked_key(request.source), checked_key(request.target)]
                admitted.store(request.uri, names, write=True).copy(request.source, request.target)
            case Delete():
                names = [checked_key(key) for key in request.keys]
                admitted.store(request.uri, names, write=True).delete(names)
            case _:
                return self._serve_courier(admitted, request, descriptor)
        return Done()

    def _serve_courier(self, admitted: Admitted, request: Asked, descriptor: int | None) -> Answer:
        """Do what is not about objects."""
        match request:
            case Feed():
                if request.size > _ORDER_BYTES:
                    raise BadPacket("an order is too long")
                content = _read(self._file(descriptor, os.O_RDONLY), request.size)
                self._porters.start(admitted.admit, content)
            case EndPorters():
                self._porters.end(admitted.admit.token)
            case AskCredential():
                secret = self._porters.credential(admitted.admit.credential)
                return Done(content=secret.encode() if secret is not None else None)
            case AskWriters():
                if len(request.files) > MOST_FILES or not admitted.admit.user.reads_all:
                    raise BadPacket("only the courier of a container asks who writes to some files")
                found = open_for_writing(request.files)
                return Writers(tuple((*file, appends) for file, appends in found.items()))
            case _:
                raise BadPacket("a request came out of turn")
        return Done()

    def _get(self, admitted: Admitted, request: Get, file: int) -> Answer:
        store = admitted.store(request.uri, [request.key], write=False)
        key = checked_key(request.key)
        if request.end is None:
            os.lseek(file, 0, os.SEEK_SET)
            return Done(store.get_into(key, file))
        if request.start < 0 or request.end - request.start > WHOLE_BYTES:
            raise BadUri(f"{request.start} to {request.end} is not a valid range; ask for less at once")
        content = store.get_range(key, request.start, request.end)
        if len(content) <= INLINE_BYTES:
            return Done(len(content), content)
        _write(file, content)
        return Done(len(content))

    def _put(self, admitted: Admitted, request: Put, descriptor: int | None) -> Answer:
        store = admitted.store(request.uri, [request.key], write=True)
        key = checked_key(request.key)
        content: Content | None = request.content
        if content is None:
            if not 0 <= request.size <= WHOLE_BYTES:
                raise BadUri(f"{key}: {request.size} bytes are too many for one piece")
            content = _content(self._file(descriptor, os.O_RDONLY), request.size)
        store.put(key, content, create_only=request.create_only)
        return Done(request.size)

    def _pour(self, admitted: Admitted, request: Pour, descriptor: int | None) -> Answer:
        if descriptor is None or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise BadPacket("what is poured must come through a pipe")
        size, ended = 0, False

        def pieces() -> Iterator[bytes]:
            nonlocal size, ended
            while piece := os.read(descriptor, _PIECE_BYTES):
                size += len(piece)
                yield piece
            ended = True
            if not self._poured().whole:
                raise _Unfinished

        try:
            store = admitted.store(request.uri, [request.key], write=True)
            store.put_pieces(checked_key(request.key), pieces())
        except _Unfinished:
            return Failed("ObjectsError", "called off by its sender")
        except ObjectsError:
            if not ended:
                # The sender hears of it by its pipe, and closes with the packet that is due.
                null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                os.dup2(null, descriptor, inheritable=False)
                os.close(null)
                self._poured()
            raise
        return Done(size)

    def _poured(self) -> Poured:
        content, descriptor = receive(self._line)
        if descriptor is not None:
            os.close(descriptor)
        request = requests.decode(content)
        if not isinstance(request, Poured):
            raise BadPacket("a request came before the one before it had ended")
        return request

    def _list(self, admitted: Admitted, request: List) -> Answer:
        prefix = request.prefix.strip("/")
        names = [checked_key(prefix)] if prefix else []
        store = admitted.store(request.uri, names, write=False)
        rows: list[tuple[str, int, int]] = []
        length = 0
        for entry in store.list(request.prefix):
            cost = 4 * len(entry.key) + 32  # a character has four bytes at most
            if rows and length + cost > NAMES_BYTES:
                send(self._line, encode(Entries(tuple(rows), last=False)))
                rows, length = [], 0
            rows.append((entry.key, entry.bytes, entry.changed_at))
            length += cost
        return Entries(tuple(rows), last=True)

    def _file(self, descriptor: int | None, access: int) -> int:
        """Return a descriptor that may be used so; one of a device or of /proc could do more than it seems to."""
        if descriptor is None:
            raise BadPacket("a file must travel with this request")
        status, flags = os.fstat(descriptor), fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if not stat.S_ISREG(status.st_mode) or status.st_dev not in self._devices:
            raise BadPacket(
                "what travels with a request must be memory, or a file where attempts have theirs"
            )
        if flags & os.O_PATH or flags & os.O_ACCMODE not in (access, os.O_RDWR):
            raise BadPacket("the file that travels with a request is open for something else")
        return descriptor


class _Unfinished(Exception):
    """The sender of pieces has called off."""


def _content(file: int, size: int) -> Content:
    """Return the first bytes of a file, where they are if they cannot go away meanwhile."""
    status = os.fstat(file)
    try:
        stays = bool(fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        stays = False  # It is not memory.
    # A file with holes would be filled by being looked at, which may fail with a signal.
    if stays and 0 < size <= min(status.st_size, status.st_blocks * _BLOCK_BYTES):
        return memoryview(mmap.mmap(file, size, prot=mmap.PROT_READ))
    return _read(file, size)


def _read(file: int, size: int) -> bytearray:
    content = bytearray(max(0, size))
    view = memoryview(content)
    done = 0
    while done < size and (more := os.preadv(file, [view[done:]], done)):
        done += more
    if done < size:
        raise BadPacket(f"the file that travels with a request ends after {done} of {size} bytes")
    return content


def _write(file: int, content: bytes) -> None:
    view, done = memoryview(content), 0
    while done < len(view):
        done += os.pwrite(file, view[done:], done)
