"""What is committed of a directory, what is uploaded for the next commit, and how a look differs from it.

Decides what a look contributes to the next picture:
- a new file goes in when it is finished, whatever is written beside it;
- the files of a new directory go in together, when all of them are finished, or when it is seen that they never are;
- files that the store has already change together: while one of them is being written over, all stay as they are
  committed, and vanished ones stay too, for as long as the writing may be a checkpoint's;
- what is never at rest goes in as it was last read, and keeps nobody waiting.
Must not know how anything is moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from windfall.agent.sync.companions import databases, stem_of
from windfall.agent.sync.links import led_to
from windfall.agent.sync.manifests import DirectoryEntry, FileEntry, LinkEntry, Manifest
from windfall.agent.sync.scanning import Found, Look
from windfall.agent.sync.stillness import Judgement
from windfall.agent.sync.uploading import Uploaded

#: How long a new directory may be filled with short writes before its files count by themselves.
_FILLING_S = 5.0


@dataclass(frozen=True, slots=True)
class Picture:
    """A directory, ready to be committed."""

    files: tuple[FileEntry, ...]
    directories: tuple[DirectoryEntry, ...]
    links: tuple[LinkEntry, ...] = ()
    #: Whether it is all of the directory as the look found it.
    is_whole: bool = True


@dataclass(slots=True)
class _Filling:
    """A directory that the store does not know yet."""

    since: float
    #: When a write was last seen to go on.
    long_at: float = float("-inf")
    is_open_ended: bool = False


@dataclass(slots=True)
class Pictures:
    """The newest committed picture and the uploaded files of the one to come. Times are monotonic seconds."""

    rest_s: float = 20.0
    committed: Manifest | None = None
    _files: dict[str, FileEntry] = field(default_factory=dict)
    _links: dict[str, LinkEntry] = field(default_factory=dict)
    #: Directories that hold a committed file.
    _parents: set[str] = field(default_factory=set)
    #: Files as they were found when they were known to be as committed.
    _known: dict[str, Found] = field(default_factory=dict)
    _uploaded: dict[str, Uploaded] = field(default_factory=dict)
    _filling: dict[str, _Filling] = field(default_factory=dict)
    #: Since when a changed file is finished and not uploaded.
    _lacking_since: dict[str, float] = field(default_factory=dict)

    def begin(self, manifest: Manifest | None) -> None:
        """Start from what an earlier process or attempt has committed."""
        self._take(manifest)
        self._known = {}

    def _take(self, manifest: Manifest | None) -> None:
        self.committed = manifest
        self._files = {} if manifest is None else {entry.path: entry for entry in manifest.files}
        self._links = {} if manifest is None else {entry.path: entry for entry in manifest.links}
        self._parents = {parent for path in self._files for parent in parents_of(path)}

    def changed(self, look: Look) -> list[str]:
        """Files of a look that are not known to be as committed."""
        return [path for path, found in look.files.items() if not self._is_committed(path, found)]

    def _is_committed(self, path: str, found: Found) -> bool:
        entry = self._files.get(path)
        if entry is None:
            return False
        known = self._known.get(path)
        if known is not None:
            return known is found or known.stamp == found.stamp
        # From before this process: a restored file keeps its time, and a write changes it.
        same = (entry.bytes, entry.mtime_ns) == (found.stamp.bytes, found.stamp.mtime_ns)
        same = same and entry.mode == found.mode & 0o777
        if same:
            self._known[path] = found
        return same

    def differing(self, look: Look) -> set[str]:
        """Everything of which the committed picture differs from a look."""
        paths = {*self.changed(look), *(path for path in self._files if path not in look.files)}
        paths.update(path for path, link in look.links.items() if not self._has_link(path, link.target))
        paths.update(path for path in self._links if path not in look.links)
        return paths

    def _has_link(self, path: str, target: str) -> bool:
        return path in self._links and self._links[path].target == target

    def is_in_place(self, path: str, found: Found) -> bool:
        """Whether a changed file is the very file that is committed, written over: it was not moved to its name."""
        known = self._known.get(path)
        return path in self._files and (known is None or found.is_same_file(known))

    def to_upload(self, look: Look, judgement: Judgement) -> dict[str, Found]:
        """Files that are still and not yet uploaded as they are."""
        return {path: look.files[path] for path in judgement.still if not self._has(path, look.files[path])}

    def _has(self, path: str, found: Found) -> bool:
        return path in self._uploaded and self._uploaded[path].stamp == found.stamp

    def has_all(self, look: Look, paths: Iterable[str]) -> bool:
        """Whether files of a look are committed or uploaded as they are."""
        found = look.files
        return all(self._is_committed(path, found[path]) or self._has(path, found[path]) for path in paths)

    def uploaded(self, versions: Mapping[str, Uploaded], look: Look) -> None:
        """Learn which versions of files are uploaded; what a look does not find any more is forgotten."""
        self._uploaded = {path: one for path, one in self._uploaded.items() if path in look.files}
        for path, version in versions.items():
            if self._files.get(path) == version.entry:
                # Linked, or renamed and renamed back: another stamp, and nothing new to commit.
                self._known[path] = version.found
                self._uploaded.pop(path, None)
            else:
                self._uploaded[path] = version

    def needed(self) -> set[str]:
        """Pieces that the next commit counts on."""
        return {digest for version in self._uploaded.values() for digest in version.entry.pieces}

    def picture(self, look: Look, judgement: Judgement, now: float, *, final: bool) -> Picture | None:
        """What may be committed of a look now; None where that is nothing new."""
        changed = self.changed(look)
        held = self._held_directories(changed, judgement, now)
        holds, kept = self._kept_as_committed(look, changed, judgement, now, final=final)
        files = {
            path: entry
            for path, found in look.files.items()
            if (entry := self._entry(path, found, kept)) is not None and _unit(path, held) is None
        }
        current = all(path in files and self._is_current(files[path], look.files[path]) for path in changed)
        for path, entry in self._files.items():
            if path not in look.files and (path in kept or path in judgement.gone) and _fits(path, look):
                files[path] = entry
                current = False
        links = dict(self._links_of(look, files, holds=holds))
        current = current and links.keys() == look.links.keys()
        directories = tuple(
            DirectoryEntry(path, mode & 0o777)
            for path, mode in look.directories.items()
            if _unit(f"{path}/", held) is None
        )
        if files == self._files and links == self._links:
            # A new empty directory alone is not a new checkpoint: it is about to be written to.
            before = () if self.committed is None else self.committed.directories
            if not final or directories == before:
                return None
        in_order = (files[path] for path in sorted(files))
        return Picture(tuple(in_order), directories, tuple(links.values()), is_whole=current)

    def _entry(self, path: str, found: Found, kept: Collection[str]) -> FileEntry | None:
        if path in kept or self._is_committed(path, found) or path not in self._uploaded:
            return self._files.get(path)
        return self._uploaded[path].entry

    def _is_current(self, entry: FileEntry, found: Found) -> bool:
        return entry is not self._files.get(entry.path) and self._has(entry.path, found)

    # --- what waits for what ---------------------------------------------------------------------------

    def _held_directories(self, changed: Collection[str], judgement: Judgement, now: float) -> set[str]:
        """New directories that are being filled: none of their files goes in yet."""
        members: dict[str, list[str]] = {}
        for path in changed:
            unit = next((parent for parent in parents_of(path) if parent not in self._parents), None)
            if unit is not None:
                members.setdefault(unit, []).append(path)
        held, before = set(), self._filling
        self._filling = {}
        for unit, paths in members.items():
            moving = judgement.moving.intersection(paths)
            state = before.get(unit) or _Filling(now)
            if not moving:
                state.since = now
            elif moving & judgement.lasting - judgement.restless:
                state.long_at = now
            state.is_open_ended = state.is_open_ended or now - max(state.since, state.long_at) >= _FILLING_S
            self._filling[unit] = state
            lacks = any(path not in self._uploaded for path in paths)
            if (moving or lacks) and not state.is_open_ended:
                held.add(unit)
        return held

    def _kept_as_committed(
        self, look: Look, changed: Collection[str], judgement: Judgement, now: float, *, final: bool
    ) -> tuple[bool, Collection[str]]:
        """Whether one of the committed names is being written over, and which names stay as committed for that."""
        known = [path for path in changed if path in self._files]
        lacking = {
            path for path in known if path not in judgement.moving and not self._has(path, look.files[path])
        }
        self._lacking_since = {path: self._lacking_since.get(path, now) for path in lacking}
        in_place = {path for path in known if self.is_in_place(path, look.files[path])}
        blocking = {path for path in known if path in judgement.moving - judgement.restless}
        if final:
            blocking &= in_place
        blocking.update(
            path
            for path, since in self._lacking_since.items()
            if path in in_place or (now - since < self.rest_s and path not in self._uploaded)
        )
        if not blocking:
            return False, self._apart(look, changed)
        # What was moved to its name is whole by itself; at the end there is no later look that would take it.
        moved = set(known) - in_place if final else ()
        return True, self._files.keys() - moved | self._apart(look, changed)

    def _apart(self, look: Look, changed: Collection[str]) -> set[str]:
        """Files of databases of which not every file is uploaded as it is: they go in together or not at all."""
        stems = databases((*look.files, *self._files)) if changed else set()
        lacking = {stem_of(path) for path in changed if not self._has(path, look.files[path])} & stems
        return (
            {path for path in (*look.files, *self._files) if stem_of(path) in lacking} if lacking else set()
        )

    def _links_of(
        self, look: Look, files: Mapping[str, FileEntry], *, holds: bool
    ) -> Iterator[tuple[str, LinkEntry]]:
        """Links as they are; as committed where they lead to what does not go in yet, or are kept with the rest."""
        if not look.links and not self._links:
            return
        left_out = {path for path in look.files if path not in files}
        shown = {*files, *(parent for path in files for parent in parents_of(path))}
        left_out |= {parent for path in left_out for parent in parents_of(path)} - shown
        for path in sorted({*look.links, *self._links}):
            link, before = look.links.get(path), self._links.get(path)
            if link is None:
                if holds and before is not None and _fits(path, look):
                    yield path, before
            elif before is not None and (before.target == link.target or holds):
                yield path, before
            elif led_to(path, link.target) not in left_out:
                yield path, LinkEntry(path, link.target, link.mtime_ns)
            elif before is not None:
                yield path, before

    def commit(self, manifest: Manifest) -> None:
        """Learn that a picture is committed."""
        self._take(manifest)
        for path, version in list(self._uploaded.items()):
            if self._files.get(path) is version.entry:
                self._known[path] = version.found
                del self._uploaded[path]
        self._known = {path: found for path, found in self._known.items() if path in self._files}


def parents_of(path: str) -> Iterable[str]:
    """The directories that hold a path, the highest first."""
    return (path[:cut] for cut in range(len(path)) if path[cut] == "/")


def _unit(path: str, units: Collection[str]) -> str | None:
    """Which of some directories a path is in."""
    return next((parent for parent in parents_of(path) if parent in units), None) if units else None


def _fits(path: str, look: Look) -> bool:
    """Whether a name that is gone can stand beside what is there now: nothing else has its place."""
    return path not in look.directories and not any(
        parent in look.files or parent in look.links for parent in parents_of(path)
    )
