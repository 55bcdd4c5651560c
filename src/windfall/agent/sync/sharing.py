"""What a writer of a prefix has to do with the other writers: what it takes of theirs, and what it leaves alone.

Decides which files a restore brings and which of those are the writer's own. Without other writers nothing here makes a
difference. Must not know how files are moved or when they are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from windfall.agent.sync.manifests import FileEntry, Manifest
from windfall.agent.sync.restoring import plain_objects
from windfall.agent.sync.scanning import Look
from windfall.agent.sync.shared_prefix import Neighbour, OfOthers, Part, WriterObjects, merged, neighbours
from windfall.jobs.staging import Mark
from windfall.objects.port import Entry, ObjectStore


@dataclass(frozen=True, slots=True)
class Content:
    """What a restore brings."""

    #: One's own picture, without the files of which another writer has a newer version.
    own: Manifest | None
    parts: tuple[Part, ...]
    plain: tuple[Entry, ...]
    #: Names of one's own picture of which another writer has the newest version.
    lost: frozenset[str]

    @property
    def mark(self) -> Mark | None:
        """The newest of the pictures, for people."""
        marks = [part.manifest.mark for part in self.parts if part.files or part.source is None]
        return max(marks, key=lambda mark: mark.at, default=None)


class SharedPrefix:
    """One writer's view of a prefix that it may share."""

    def __init__(self, objects: ObjectStore, writer: int, writers: int, fence: int) -> None:
        self.own: ObjectStore = objects if writer == 0 else WriterObjects(objects, writer)
        self._objects = objects
        self._writer, self._writers, self._fence = writer, writers, fence
        self._neighbours: list[Neighbour] = []
        self._of_others = OfOthers()
        #: Objects of writers that the job has no more, whose files the first writer has taken over.
        self._left_behind: list[str] = []

    @property
    def is_first(self) -> bool:
        """Whether it is the one that takes over what belongs to nobody else."""
        return self._writer == 0

    def look(self) -> None:
        """Learn who else has written here."""
        self._neighbours = neighbours(self._objects, self._writer)

    def recall(self) -> None:
        """Learn what an earlier process of this attempt has restored of others."""
        if self._writers > 1:
            self._of_others = OfOthers.read(self.own)

    def pass_over(self, writer: int) -> None:
        """Do without another writer's newest picture: the one before it is taken."""
        for one in self._neighbours:
            manifest = one.newest(self._fence) if one.writer == writer else None
            if manifest is not None:
                one.drop(manifest.order)

    def content(self, own: Manifest | None, *, with_plain: bool) -> Content:
        """All that is to be restored beside and with one's own picture."""
        found = [(one, one.newest(self._fence)) for one in self._neighbours]
        others = [(one, manifest) for one, manifest in found if manifest is not None]
        parts = merged(own, others)
        plain: tuple[Entry, ...] = ()
        first = own if self.is_first else next((it for one, it in others if one.writer == 0), None)
        if first is None and with_plain:
            # Nobody has a picture of what lay here before the first of them: the first writer would.
            taken = {file.path for part in parts for file in part.files}
            taken.update(*(one.published() for one in self._neighbours if one.writer > 0))
            plain = tuple(entry for entry in plain_objects(self._objects) if entry.key not in taken)
        lost: frozenset[str] = frozenset()
        if own is not None:
            kept = parts[0].files
            lost = frozenset(file.path for file in own.files) - {file.path for file in kept}
            own = replace(own, files=kept, links=parts[0].links)
        return Content(own, tuple(parts), plain, lost)

    def note(self, content: Content, plain: Sequence[FileEntry]) -> None:
        """Remember what of a restore is other writers'; the first one takes over what former ones have left."""
        theirs = [part for part in content.parts if part.source is not None and not self._takes_over(part)]
        files = [file for part in theirs for file in part.files]
        if not self.is_first:
            files += plain
        directories = [entry for part in theirs for entry in part.manifest.directories]
        links = [link for part in theirs for link in part.links]
        self._of_others = OfOthers.of(files, directories, links)
        if self._writers > 1:
            self._of_others.write(self.own)
        taken_over = [part.source for part in content.parts if part.source and self._takes_over(part)]
        self._left_behind = [key for one in taken_over for key in one.keys]

    def taken_over(self, content: Content) -> set[str]:
        """Names that the first writer has to look after from now on, because their writer has ended."""
        return {file.path for part in content.parts if self._takes_over(part) for file in part.files}

    def _takes_over(self, part: Part) -> bool:
        return self.is_first and part.source is not None and part.source.writer >= self._writers

    def own_part(self, look: Look) -> Look:
        """A look without what came from others and is as it came."""
        others = self._of_others
        if not others.files and not others.directories and not others.links:
            return look
        files = {
            path: found
            for path, found in look.files.items()
            if not others.is_unchanged(path, found.stamp.bytes, found.stamp.mtime_ns)
        }
        links = {path: link for path, link in look.links.items() if others.links.get(path) != link.target}
        holding = {path[:cut] for path in (*files, *links) for cut in range(len(path)) if path[cut] == "/"}
        directories = {
            path: mode
            for path, mode in look.directories.items()
            if path in holding or path not in others.directories
        }
        return Look(files, directories, links, look.odd, look.clock_ns)

    def forget_former_writers(self) -> None:
        """Remove the pictures of former writers, whose files are in a committed picture of one's own now."""
        if self._left_behind:
            self._objects.delete(self._left_behind)
            self._left_behind = []
