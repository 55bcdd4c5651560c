"""What is committed of a directory, what is uploaded for the next commit, and how a look differs from it.

Decides whether a look makes a picture that may be committed. Must not know how anything is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windfall.agent.sync.manifests import DirectoryEntry, FileEntry, Manifest
from windfall.agent.sync.scanning import Found, Look, Stamp
from windfall.agent.sync.stillness import Judgement


@dataclass(frozen=True, slots=True)
class Picture:
    """A whole directory, ready to be committed."""

    files: tuple[FileEntry, ...]
    directories: tuple[DirectoryEntry, ...]


@dataclass(slots=True)
class Pictures:
    """The newest committed picture and the uploaded files of the one to come."""

    committed: Manifest | None = None
    _files: dict[str, FileEntry] = field(default_factory=dict)
    #: Stamps under which files are known to be as committed.
    _stamps: dict[str, Stamp] = field(default_factory=dict)
    _uploaded: dict[str, tuple[Stamp, FileEntry]] = field(default_factory=dict)

    def begin(self, manifest: Manifest | None) -> None:
        """Start from what an earlier process or attempt has committed."""
        self.committed = manifest
        self._files = {} if manifest is None else {entry.path: entry for entry in manifest.files}
        self._stamps = {}

    def changed(self, look: Look) -> list[str]:
        """Files of a look that are not known to be as committed."""
        return [path for path, found in look.files.items() if not self._is_committed(path, found)]

    def _is_committed(self, path: str, found: Found) -> bool:
        entry = self._files.get(path)
        if entry is None:
            return False
        if path in self._stamps:
            return self._stamps[path] == found.stamp
        # From before this process: a restored file keeps its time, and whoever writes to it changes that.
        same = (entry.bytes, entry.mtime_ns) == (found.stamp.bytes, found.stamp.mtime_ns)
        same = same and entry.mode == found.mode & 0o777
        if same:
            self._stamps[path] = found.stamp
        return same

    def removed(self, look: Look) -> list[str]:
        """Committed files that a look does not find."""
        return [path for path in self._files if path not in look.files]

    def to_upload(self, look: Look, judgement: Judgement) -> dict[str, Found]:
        """Files that are still and not yet uploaded as they are."""
        return {path: look.files[path] for path in judgement.still if not self._has(path, look.files[path])}

    def _has(self, path: str, found: Found) -> bool:
        return path in self._uploaded and self._uploaded[path][0] == found.stamp

    def uploaded(self, entries: Mapping[str, FileEntry], look: Look) -> None:
        """Learn which files of a look are uploaded as the look found them."""
        for path, entry in entries.items():
            self._uploaded[path] = (look.files[path].stamp, entry)
            if self._files.get(path) == entry:
                # Linked, or renamed and renamed back: another stamp, and nothing new to commit.
                self._stamps[path] = look.files[path].stamp

    def needed(self) -> set[str]:
        """Pieces that the next commit counts on."""
        return {digest for _, entry in self._uploaded.values() for digest in entry.pieces}

    def picture(self, look: Look, judgement: Judgement, *, final: bool) -> Picture | None:
        """The look as a picture; None while something in it must be waited for, or nothing is new."""
        if judgement.unsettled:
            return None
        files = []
        for path, found in look.files.items():
            if self._is_committed(path, found):
                files.append(self._files[path])
            elif self._has(path, found):
                files.append(self._uploaded[path][1])
            elif path not in judgement.restless:
                return None
            elif path in self._files:
                files.append(self._files[path])
        directories = tuple(DirectoryEntry(path, mode & 0o777) for path, mode in look.directories.items())
        if {entry.path: entry for entry in files} == self._files:
            # A new empty directory alone is no new checkpoint: somebody is about to write into it.
            before = () if self.committed is None else self.committed.directories
            if not final or directories == before:
                return None
        return Picture(tuple(files), directories)

    def commit(self, manifest: Manifest) -> None:
        """Learn that a picture is committed."""
        self.committed = manifest
        self._files = {entry.path: entry for entry in manifest.files}
        for path, (stamp, entry) in self._uploaded.items():
            if self._files.get(path) is entry:
                self._stamps[path] = stamp
        self._stamps = {path: stamp for path, stamp in self._stamps.items() if path in self._files}
        # What is uploaded and not in the picture has vanished or changed since.
        self._uploaded = {}
