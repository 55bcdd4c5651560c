"""Opens object storage for one attempt, and can cut the attempt off from it.

Every URI is checked against what the attempt may use, wherever its name comes from: the request, or a file that the job
itself has put into the store. Once cut, every further call fails: what is lost or superseded must not be written by a
thread that has not heard of it. Decides nothing about what is stored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from windfall.agent.courier.errors import CalledOff
from windfall.agent.object_access import attempt_environment
from windfall.jobs.storage import FILE, StorageAccess, allowed, covering, locate, not_allowed
from windfall.objects.errors import Full, Refused, Unreachable
from windfall.objects.opening import located, open_objects
from windfall.objects.port import Content, Entry, LocalPath, ObjectStore, checked_key

T = TypeVar("T")
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0


class Stores:
    """The stores of one attempt."""

    def __init__(
        self,
        objects_file: str | None,
        access: StorageAccess,
        opener: Callable[[str], ObjectStore] | None = None,
    ) -> None:
        self.access = access
        self._objects_file = objects_file
        self._opener = opener
        self._cut = threading.Event()
        #: When the store last took what it was given, on the monotonic clock. A store that can be read but refuses
        #: every write takes nothing.
        self.took_at = time.monotonic()

    def cut(self) -> None:
        """Let nothing more through."""
        self._cut.set()

    def check(self) -> None:
        """Raise CalledOff once cut."""
        if self._cut.is_set():
            raise CalledOff("nothing more is moved for this attempt")

    def may(self, uri: str, *, write: bool = False) -> bool:
        """Return whether the attempt may use all that is below a URI."""
        return allowed(self.access.grants, uri, write)

    def open(self, uri: str, *, write: bool = False) -> ObjectStore:
        """Open the objects below a URI; Refused where the attempt may not use them."""
        self.check()
        if not self.may(uri, write=write):
            raise Refused(not_allowed(uri, write))
        return _Cuttable(uri, self, write=write)

    def open_object(self, uri: str, *, write: bool = False) -> tuple[ObjectStore, str]:
        """Open what holds one object, for that object alone; return its key too."""
        above, _, name = uri.rpartition("/")
        return self.open_some(above, [name], write=write), name

    def open_some(self, above: str, names: Iterable[str], *, write: bool = False) -> ObjectStore:
        """Open what holds some objects, for those alone; Refused where the attempt may not use one of them."""
        self.check()
        grants = self.access.grants
        if grants is None or self.may(above, write=write):
            return _Cuttable(above, self, write=write)
        holder, only = located(above), frozenset(names)
        for name in only:
            if covering(grants, holder.below(checked_key(name)), write) is None:
                raise Refused(not_allowed(f"{above}/{name}", write))
        return _Cuttable(above, self, write=write, only=only)

    def variables(self) -> dict[str, str]:
        """Return what opens the stores now."""
        return {} if self._opener is not None else attempt_environment(self._objects_file, self.access)

    def reach(self, uri: str, variables: dict[str, str], *, write: bool) -> ObjectStore:
        """Open a store itself, without any check."""
        if self._opener is not None:
            return self._opener(uri)
        return open_objects(uri, environment=variables, base=self._base(uri, write))

    def _base(self, uri: str, write: bool) -> Path | None:
        """The directory below which no link is followed: the one that is granted, for jobs may write into it."""
        place = located(uri)
        if self.access.grants is None or place.scheme != FILE:
            return None
        grant = covering(self.access.grants, place, write)
        return Path(place.path if grant is None else locate(grant.uri).path)

    def insist(
        self,
        work: Callable[[], T],
        until: float,
        complain: Callable[[str | None], None],
        full_until: float = 0.0,
    ) -> T:
        """Do something again and again while the store cannot be reached, up to a time on the monotonic clock.

        `complain` hears what is wrong while it is, and None when it is over. A store that is full is asked again too,
        if `full_until` says how long.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            self.check()
            try:
                result = work()
            except (Unreachable, Full) as error:
                is_full = isinstance(error, Full)
                if time.monotonic() + pause_s >= (min(until, full_until) if is_full else until):
                    raise
                what = "is full" if is_full else "does not answer"
                complain(f"object storage {what}, trying again: {error}")
                self._cut.wait(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            else:
                complain(None)
                return result


class _Cuttable:
    """A store that asks before each call whether it may; opened anew when its address or credentials have changed."""

    def __init__(self, uri: str, stores: Stores, *, write: bool, only: frozenset[str] | None = None) -> None:
        self._stores = stores
        self._write = write
        self._only = only
        self._opened_as = uri
        self._variables: dict[str, str] | None = None
        self._opened: ObjectStore | None = None
        try:
            self.uri = self._open().uri
        except Unreachable:
            self.uri = uri.rstrip("/")

    def _open(self) -> ObjectStore:
        """The store with the credentials of now; Unreachable while there are none."""
        variables = self._stores.variables()
        if self._opened is None or variables != self._variables:
            self._opened = self._stores.reach(self._opened_as, variables, write=self._write)
            self._variables = variables
        return self._opened

    @contextmanager
    def _asking(self) -> Iterator[ObjectStore]:
        self._stores.check()
        yield self._open()

    @contextmanager
    def _giving(self) -> Iterator[ObjectStore]:
        with self._asking() as inner:
            yield inner
        self._stores.took_at = time.monotonic()

    def _reading(self, key: str) -> AbstractContextManager[ObjectStore]:
        if self._only is not None and key not in self._only:
            raise Refused(not_allowed(f"{self.uri}/{key}", write=False))
        return self._asking()

    def _writing(self, key: str) -> AbstractContextManager[ObjectStore]:
        if not self._write or (self._only is not None and key not in self._only):
            raise Refused(not_allowed(f"{self.uri}/{key}", write=True))
        return self._giving()

    def get(self, key: str) -> bytes:
        with self._reading(key) as inner:
            return inner.get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        with self._reading(key) as inner:
            return inner.get_range(key, start, end)

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        with self._writing(key) as inner:
            inner.put(key, content, create_only=create_only)

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        with self._writing(key) as inner:
            inner.put_pieces(key, self._checked(pieces))

    def put_file(self, key: str, path: LocalPath) -> int:
        with self._writing(key) as inner:
            return inner.put_file(key, path)

    def get_file(self, key: str, path: LocalPath) -> int:
        with self._reading(key) as inner:
            return inner.get_file(key, path)

    def get_into(self, key: str, descriptor: int) -> int:
        with self._reading(key) as inner:
            return inner.get_into(key, descriptor)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        with self._reading(prefix) as inner:
            return inner.list(prefix)

    def head(self, key: str) -> Entry | None:
        with self._reading(key) as inner:
            return inner.head(key)

    def copy(self, source: str, target: str) -> None:
        with self._reading(source), self._writing(target) as inner:
            inner.copy(source, target)

    def delete(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        for key in keys:
            self._writing(key)
        with self._giving() as inner:
            inner.delete(keys)

    def _checked(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._stores.check()
            yield piece
            # That another piece is asked for means that this one was taken.
            self._stores.took_at = time.monotonic()
