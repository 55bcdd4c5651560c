"""Which files of a directory are at rest, and which hold a commit back.

Decides from successive looks: a file is still when it has not changed for a while and nobody has it open for writing;
one that is replaced again and again, each time by a finished file that is moved into its place, is taken as it is after
a moment; one that has not come to rest for long (a log that is appended to for ever) stops holding the others back;
a name that has just vanished holds back too, because it may be about to be replaced. Must not know about stores or
content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from windfall.agent.sync.scanning import Found
from windfall.agent.sync.writers import FileId

#: How many times as long as for rest is waited before a file that is replaced again and again is taken as it is.
_REPLACED_AFTER = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """One look, judged."""

    #: Changed files that may be read now.
    still: frozenset[str]
    #: Changed or vanished ones for which a commit waits.
    unsettled: frozenset[str]
    #: Changed ones for which it has waited long enough: they go in as last committed.
    restless: frozenset[str]


@dataclass(slots=True)
class Stillness:
    """Remembers looks. Times are monotonic seconds given by the caller."""

    settle_s: float
    rest_s: float
    open_for_writing: Callable[[Collection[FileId]], set[FileId]]
    #: Files at the last look, and since when they have been as they are.
    _seen: dict[str, tuple[Found, float]] = field(default_factory=dict)
    _gone: dict[str, float] = field(default_factory=dict)
    _unsettled_since: dict[str, float] = field(default_factory=dict)
    #: At how many looks in a row a name stood for another file than at the one before.
    _replaced: dict[str, int] = field(default_factory=dict)

    def judge(self, files: Mapping[str, Found], changed: Collection[str], now: float) -> Judgement:
        """Judge a look of which some files differ from what is committed; the others need no judging."""
        self._remember(files, now)
        quiet = [
            path
            for path in changed
            if now - self._seen[path][1] >= self.settle_s or self._is_replaced(path, now)
        ]
        ids = {path: (files[path].stamp.device, files[path].stamp.inode) for path in quiet}
        written = self.open_for_writing(set(ids.values()))
        still = frozenset(path for path in quiet if ids[path] not in written)
        moving = [path for path in changed if path not in still]
        self._unsettled_since = {path: self._unsettled_since.get(path, now) for path in moving}
        restless = frozenset(
            path for path, since in self._unsettled_since.items() if now - since >= self.rest_s
        )
        return Judgement(still, frozenset(self._unsettled_since) - restless | self._gone.keys(), restless)

    @property
    def replaced(self) -> Collection[str]:
        """Names that stand for another file than at the look before: whoever gave it the name had finished it."""
        return self._replaced.keys()

    def _is_replaced(self, path: str, now: float) -> bool:
        """Whether a name stands for another file at every look: then each was complete when it got the name.

        That it was renamed cannot be seen: a write and a rename within one tick of the clock have the same time.
        """
        waited_s = now - self._unsettled_since.get(path, now)
        return self._replaced.get(path, 0) > 1 and waited_s >= _REPLACED_AFTER * self.settle_s

    def _remember(self, files: Mapping[str, Found], now: float) -> None:
        for path in self._seen.keys() - files.keys():
            self._gone.setdefault(path, now)
        self._gone = {
            path: since
            for path, since in self._gone.items()
            if path not in files and now - since < self.settle_s
        }
        before = self._seen
        self._seen = {}
        self._replaced = {
            path: self._replaced.get(path, 0) + 1
            for path, found in files.items()
            if path in before and not found.is_same_file(before[path][0])
        }
        for path, found in files.items():
            known = before.get(path)
            unchanged = known is not None and known[0].stamp == found.stamp
            self._seen[path] = known if known is not None and unchanged else (found, now)
