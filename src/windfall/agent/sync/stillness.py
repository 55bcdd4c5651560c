"""Which changed files may be read now, and which are being written.

Decides for each file by itself, from successive looks. A file is still when it has not changed for a moment and nobody
has it open for writing. Some files are never so, and each kind has its rule:
- one that is replaced at every look by a finished file is read as it is after a moment;
- one of a directory whose files live no longer than from one look to the next is read at once, if it is closed;
- one that is written again and again is read when it is closed, once it has not been at rest for long;
- one that is open and has not changed for long (a database, an event file) is read though it is open;
- one that everybody who writes to it only appends to (a log) is read up to where it ends.
What belongs to one database is read together or not at all. Must not know about stores or content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from windfall.agent.sync.companions import with_companions
from windfall.agent.sync.scanning import Found
from windfall.agent.sync.writers import FileId

#: How many times as long as for rest is waited before a file that is replaced again and again is taken as it is.
_REPLACED_AFTER = 3
#: How long a directory counts as one of short-lived files after one of them has been seen.
_SHORT_LIVED_S = 30.0
#: How long a write that goes on is waited for; a file that is written for longer is reported as never at rest.
LONG_WRITE_S = 600.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """One look, judged: every changed file is either still or moving."""

    #: May be read now.
    still: frozenset[str] = frozenset()
    #: Being written, or just written.
    moving: frozenset[str] = frozenset()
    #: Those of the moving ones for which nobody waits any longer.
    restless: frozenset[str] = frozenset()
    #: Those of the moving ones that a single write would have left still by now: they go on being written.
    lasting: frozenset[str] = frozenset()
    #: Those of the still ones that are being appended to.
    appended: frozenset[str] = frozenset()
    #: Names that have just vanished: they may be about to be replaced.
    gone: frozenset[str] = frozenset()

    def without(self, paths: Collection[str]) -> Judgement:
        """The judgement with files that cannot be read taken for ones that are never at rest."""
        if not paths:
            return self
        moving, restless = self.moving.union(paths), self.restless.union(paths)
        return replace(self, still=self.still.difference(paths), moving=moving, restless=restless)


@dataclass(slots=True)
class _Moving:
    since: float
    bytes: int
    grows: bool = False


@dataclass(slots=True)
class Stillness:
    """Remembers looks. Times are monotonic seconds given by the caller."""

    settle_s: float
    rest_s: float
    #: Which of some files are open for writing, and whether all that have them so can only append.
    open_for_writing: Callable[[Collection[FileId]], Mapping[FileId, bool]]
    #: Files at the last look, and since when they have been as they are.
    _seen: dict[str, tuple[Found, float]] = field(default_factory=dict)
    _gone: dict[str, float] = field(default_factory=dict)
    _moving: dict[str, _Moving] = field(default_factory=dict)
    #: At how many looks in a row a name stood for another file than at the one before.
    _replaced: dict[str, int] = field(default_factory=dict)
    #: Directories in which a file came and went between looks, and until when that counts.
    _short_lived: dict[str, float] = field(default_factory=dict)

    def judge(
        self, files: Mapping[str, Found], changed: Collection[str], now: float, clock_ns: int | None = None
    ) -> Judgement:
        """Judge a look of which some files differ from what is committed; the others need no judging.

        `clock_ns` is the time by the clock that the files' own times are from; None where nobody knows it.
        """
        fresh = self._remember(files, now)
        quiet_s = {path: self._quiet_s(path, now, clock_ns) for path in changed}
        ids = {path: (files[path].stamp.device, files[path].stamp.inode) for path in changed}
        opened = self.open_for_writing(set(ids.values())) if ids else {}
        still, appended = set(), set()
        for path in changed:
            is_open = ids[path] in opened
            if quiet_s[path] >= (self.rest_s if is_open else self.settle_s):
                still.add(path)
            elif is_open and opened[ids[path]]:
                appended.add(path)
            elif not is_open and self._may_be_read_young(path, now, is_fresh=path in fresh):
                still.add(path)
        moving = with_companions(set(changed) - still - appended, set(changed))
        self._note_moving(moving, files, now)
        return Judgement(
            still=frozenset((still | appended) - moving),
            moving=frozenset(moving),
            restless=frozenset(path for path in moving if self._is_restless(path, now)),
            lasting=frozenset(path for path in moving if now - self._moving[path].since >= self.settle_s),
            appended=frozenset(appended - moving),
            gone=frozenset(self._gone),
        )

    @property
    def replaced(self) -> Collection[str]:
        """Names of another file than at the look before: a file is complete before it is renamed."""
        return self._replaced.keys()

    def short_lived(self, files: Mapping[str, Found]) -> dict[str, Found]:
        """Files of a look to come that may be gone in a moment: new ones where such have been seen before."""
        if not self._short_lived:
            return {}
        return {
            path: found
            for path, found in files.items()
            if path not in self._seen and path.rpartition("/")[0] in self._short_lived
        }

    def _quiet_s(self, path: str, now: float, clock_ns: int | None) -> float:
        """How long a file is known not to have changed: by its own time, or by looks that agree."""
        found, since = self._seen[path]
        by_time_s = -1.0 if clock_ns is None else (clock_ns - found.stamp.ctime_ns) / 1e9
        return max(now - since, by_time_s)

    def _may_be_read_young(self, path: str, now: float, *, is_fresh: bool) -> bool:
        """Whether a closed file may be read though it has just changed, because it is never anything else.

        That a file was renamed cannot be seen: a write and a rename within one tick of the clock have the same time.
        """
        moving = self._moving.get(path)
        waited_s = 0.0 if moving is None else now - moving.since
        if self._replaced.get(path, 0) > 1 and waited_s >= _REPLACED_AFTER * self.settle_s:
            return True
        return waited_s >= self.rest_s or (is_fresh and path.rpartition("/")[0] in self._short_lived)

    def _is_restless(self, path: str, now: float) -> bool:
        moving = self._moving[path]
        return now - moving.since >= (LONG_WRITE_S if moving.grows else self.rest_s)

    def _note_moving(self, moving: Collection[str], files: Mapping[str, Found], now: float) -> None:
        before = self._moving
        self._moving = {}
        for path in moving:
            size, known = files[path].stamp.bytes, before.get(path)
            if known is None:
                self._moving[path] = _Moving(now, size)
            else:
                self._moving[path] = _Moving(known.since, size, grows=size > known.bytes)

    def _remember(self, files: Mapping[str, Found], now: float) -> set[str]:
        """Learn of a look; the answer is which names are new, or stand for another file than at the look before."""
        for path in self._seen.keys() - files.keys():
            self._gone.setdefault(path, now)
            if path in self._moving:
                self._short_lived[path.rpartition("/")[0]] = now + _SHORT_LIVED_S
        self._gone = {
            path: since
            for path, since in self._gone.items()
            if path not in files and now - since < self.settle_s
        }
        self._short_lived = {path: until for path, until in self._short_lived.items() if until > now}
        before, self._seen = self._seen, {}
        replaced: dict[str, int] = {}
        fresh = set()
        for path, found in files.items():
            known = before.get(path)
            if known is None:
                fresh.add(path)
            elif known[0] is found or known[0].stamp == found.stamp:
                self._seen[path] = known
                continue
            elif not found.is_same_file(known[0]):
                replaced[path] = self._replaced.get(path, 0) + 1
                fresh.add(path)
            self._seen[path] = (found, now)
        self._replaced = replaced
        return fresh
