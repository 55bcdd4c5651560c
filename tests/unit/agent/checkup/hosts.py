"""Hand-made hosts for the checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.agent.checkup.host import FileSystem, Ran

GIB = 1 << 30


@dataclass
class MadeHost:
    """A host of which everything is told."""

    files: dict[str, str] = field(default_factory=dict)
    directories: dict[str, list[str]] = field(default_factory=dict)
    programs: dict[str, Ran] = field(default_factory=dict)
    rooms: dict[str, FileSystem] = field(default_factory=dict)
    taken_ms: float | None = 1.0
    is_root: bool = True
    open_files: tuple[int, int] = (1024, 1_048_576)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, directory: str) -> list[str]:
        return self.directories.get(directory, [])

    def run(self, *command: str) -> Ran | None:
        return self.programs.get(command[0])

    def file_system(self, path: str) -> FileSystem | None:
        return self.rooms.get(path)

    def sync_ms(self, directory: str) -> float | None:
        return self.taken_ms


DEBIAN = "ID=debian\nVERSION_ID=12\n"
AMAZON = 'ID="amzn"\nID_LIKE="fedora"\n'


def room(free_gib: float, total_gib: float | None = None, inodes: int = 1_000_000) -> FileSystem:
    """A file system of so many GiB."""
    total = free_gib if total_gib is None else total_gib
    return FileSystem(int(free_gib * GIB), int(total * GIB), inodes, 2_000_000)
