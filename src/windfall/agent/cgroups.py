"""Memory and vCPU limits through cgroups, version 2 or 1, where this process may write them.

Decides which files limit an attempt, and finds out once, by really limiting and moving a process, whether
that works here; a container or an ordinary user often may not. Limits nest: attempts live in a subtree
below the agent's own cgroup (below an ancestor in version 2, where a group with processes in it may not
hand controllers down). Must not know attempts' messages or how processes are started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Sequence

import msgspec

from windfall.agent.errors import CannotIsolate

_NAME_CHARACTERS = 24
_GROUP_NAME = re.compile(rf"[0-9a-f]{{{_NAME_CHARACTERS}}}")
_CPU_PERIOD_US = 100_000
_CPU_QUOTA_LEAST_US = 1_000


class Hierarchy(msgspec.Struct, frozen=True):
    """One directory under which groups can be made, and the controllers that work in it."""

    directory: str
    version: int
    controllers: tuple[str, ...]


class AttemptCgroup:
    """The groups of one attempt, one per hierarchy."""

    __slots__ = ("_directories", "_forgiven", "_hierarchies")

    def __init__(self, hierarchies: Sequence[Hierarchy], name: str) -> None:
        self._hierarchies = hierarchies
        self._directories = [os.path.join(hierarchy.directory, name) for hierarchy in hierarchies]
        self._forgiven = 0

    def make(self, memory_mib: int, vcpus: float | None) -> None:
        """Create the groups and set their limits; None leaves the vCPUs unlimited."""
        try:
            for hierarchy, directory in zip(self._hierarchies, self._directories, strict=True):
                os.makedirs(directory, 0o755, exist_ok=True)
                for name, value, required in _limits(hierarchy, memory_mib, vcpus):
                    _write(os.path.join(directory, name), value, required=required)
        except OSError as error:
            raise CannotIsolate(f"cannot limit an attempt by cgroup: {error}") from error

    @property
    def procs_files(self) -> list[str]:
        """The files to which a process writes its pid to join."""
        return [os.path.join(directory, "cgroup.procs") for directory in self._directories]

    def exists(self) -> bool:
        """Tell whether the groups are there (an agent that died may have left them)."""
        return all(os.path.isdir(directory) for directory in self._directories)

    def enrol(self, pids: Iterable[int]) -> None:
        """Move processes into the groups; one that ended meanwhile is left out."""
        for pid in pids:
            for path in self.procs_files:
                try:
                    _write(path, str(pid))
                except ProcessLookupError:
                    break
                except OSError as error:
                    raise CannotIsolate(f"cannot move process {pid} into its cgroup: {error}") from error

    def pids(self) -> set[int]:
        """Return the processes that are in any of the groups."""
        found: set[int] = set()
        for path in self.procs_files:
            found.update(int(pid) for pid in _read(path).split())
        return found

    def out_of_memory(self) -> bool:
        """Tell whether the kernel killed a process of the attempt for memory."""
        return self._killed_for_memory() > self._forgiven

    def forgive(self) -> None:
        """Do not count the processes that were killed for memory so far: they were not the job's own."""
        self._forgiven = self._killed_for_memory()

    def end_together(self, *, together: bool) -> None:
        """Whether all processes are killed when memory is used up, as usual, or one at a time (version 2)."""
        for hierarchy, directory in zip(self._hierarchies, self._directories, strict=True):
            if hierarchy.version == 2 and "memory" in hierarchy.controllers:
                with contextlib.suppress(
                    OSError
                ):  # The group is being removed, or the kernel has no such file.
                    _write(os.path.join(directory, "memory.oom.group"), "1" if together else "0")

    def _killed_for_memory(self) -> int:
        killed = 0
        for hierarchy, directory in zip(self._hierarchies, self._directories, strict=True):
            if "memory" in hierarchy.controllers:
                name = "memory.events" if hierarchy.version == 2 else "memory.oom_control"
                for line in _read(os.path.join(directory, name)).splitlines():
                    key, _, count = line.partition(" ")
                    if key == "oom_kill":
                        killed += int(count)
        return killed

    def remove(self) -> bool:
        """Remove the groups; False when processes are still ending in them and it must be tried again."""
        gone = True
        for directory in self._directories:
            try:
                os.rmdir(directory)
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone


class CgroupTree:
    """Makes the groups of attempts in the hierarchies that were found to work."""

    def __init__(self, hierarchies: Sequence[Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self.controllers = tuple(name for hierarchy in hierarchies for name in hierarchy.controllers)

    def description(self, *, hard_cpu_limit: bool) -> str:
        """Return what is limited and how, e.g. `cgroup v1 (memory, cpu)`."""
        limited = [name for name in self.controllers if name != "cpu" or hard_cpu_limit]
        return f"cgroup v{self._hierarchies[0].version} ({', '.join(limited)})"

    def group(self, token: str) -> AttemptCgroup:
        """Return the (not yet made) groups of an attempt."""
        return AttemptCgroup(self._hierarchies, _group_name(token))

    def others(self, tokens: Iterable[str]) -> list[AttemptCgroup]:
        """Return the groups that are there and belong to none of these attempts."""
        known = {_group_name(token) for token in tokens}
        names: set[str] = set()
        for hierarchy in self._hierarchies:
            try:
                names.update(entry.name for entry in os.scandir(hierarchy.directory) if entry.is_dir())
            except OSError:
                continue
        mine = (name for name in names - known if _GROUP_NAME.fullmatch(name))
        return [AttemptCgroup(self._hierarchies, name) for name in sorted(mine)]

    def remove_if_empty(self) -> None:
        """Leave nothing behind at a shutdown, unless attempts are still in it."""
        for hierarchy in self._hierarchies:
            _remove_quietly(hierarchy.directory)


def _group_name(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:_NAME_CHARACTERS]


def find_cgroups(name: str) -> CgroupTree | None:
    """Find hierarchies that can be written and make `name` in them; None when there are none."""
    mounts = parse_mounts(_read("/proc/self/mountinfo"))
    own = parse_own_groups(_read("/proc/self/cgroup"))
    hierarchies = []
    for version, controllers, mount in mounts:
        wanted = tuple(c for c in ("memory", "cpu") if version == 2 or c in controllers)
        path = own.get("" if version == 2 else controllers[0] if controllers else "?")
        if not wanted or path is None:
            continue
        hierarchy = _usable(version, wanted, mount, path, name)
        if hierarchy is not None:
            hierarchies.append(hierarchy)
    if any(hierarchy.version == 1 for hierarchy in hierarchies):
        hierarchies = [hierarchy for hierarchy in hierarchies if hierarchy.version == 1]
    hierarchies.sort(key=lambda hierarchy: "memory" not in hierarchy.controllers)
    return CgroupTree(hierarchies) if hierarchies else None


def parse_mounts(mountinfo: str) -> list[tuple[int, list[str], str]]:
    """Return (version, controllers, mount point) of each mount that has memory or cpu, or is version 2."""
    found: list[tuple[int, list[str], str]] = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, super_options = [*after.split(" ", 2), "", ""][:3]
        point = before.split(" ")[4]
        if kind == "cgroup2":
            found.append((2, [], point))
        elif kind == "cgroup":
            options = super_options.split(",")
            controllers: list[str] = [name for name in ("memory", "cpu") if name in options]
            if controllers:
                found.append((1, controllers, point))
    return found


def parse_own_groups(content: str) -> dict[str, str]:
    """Return this process's group by controller; version 2 has the empty name."""
    paths = {}
    for line in content.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _usable(version: int, wanted: tuple[str, ...], mount: str, path: str, name: str) -> Hierarchy | None:
    own = os.path.normpath(mount + path)
    if not os.path.isdir(own):  # In a container the path may be the host's.
        own = mount
    bases = [own]
    while version == 2 and bases[-1] != mount and bases[-1].startswith(mount):
        bases.append(os.path.dirname(bases[-1]))
    for base in bases:
        directory = os.path.join(base, name)
        try:
            if version == 2:
                wanted = _hand_down(base, wanted)
            if not wanted:
                continue
            os.makedirs(directory, 0o755, exist_ok=True)
            if version == 2:
                _write(os.path.join(directory, "cgroup.subtree_control"), " ".join(f"+{c}" for c in wanted))
            hierarchy = Hierarchy(directory, version, wanted)
            _try_out(hierarchy)
        except (OSError, CannotIsolate):
            _remove_quietly(directory)
            continue
        return hierarchy
    return None


def _hand_down(base: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    available = _read(os.path.join(base, "cgroup.controllers")).split()
    wanted = tuple(controller for controller in wanted if controller in available)
    handed = _read(os.path.join(base, "cgroup.subtree_control")).split()
    missing = [controller for controller in wanted if controller not in handed]
    if missing:
        _write(os.path.join(base, "cgroup.subtree_control"), " ".join(f"+{c}" for c in missing))
    return wanted


def _try_out(hierarchy: Hierarchy) -> None:
    """Limit and move a real process, because only that shows that both are permitted."""
    group = AttemptCgroup([hierarchy], "probe")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    try:
        group.make(64, 1.0)
        group.enrol([child])
        if child not in group.pids():
            raise CannotIsolate("the process did not arrive in its cgroup")
    finally:
        os.close(writer)
        os.waitpid(child, 0)
        group.remove()


def _limits(hierarchy: Hierarchy, memory_mib: int, vcpus: float | None) -> list[tuple[str, str, bool]]:
    memory = str(memory_mib << 20)
    quota = None if vcpus is None else max(_CPU_QUOTA_LEAST_US, int(vcpus * _CPU_PERIOD_US))
    files: list[tuple[str, str, bool]] = []
    if "memory" in hierarchy.controllers and memory_mib > 0:
        if hierarchy.version == 2:
            files += [
                ("memory.max", memory, True),
                ("memory.swap.max", "0", False),
                ("memory.oom.group", "1", False),
            ]
        else:
            files += [("memory.limit_in_bytes", memory, True), ("memory.memsw.limit_in_bytes", memory, False)]
    if "cpu" in hierarchy.controllers and quota is not None:
        if hierarchy.version == 2:
            files.append(("cpu.max", f"{quota} {_CPU_PERIOD_US}", True))
        else:
            files.append(("cpu.cfs_period_us", str(_CPU_PERIOD_US), True))
            files.append(("cpu.cfs_quota_us", str(quota), True))
    return files


def _write(path: str, value: str, *, required: bool = True) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError:
        if required:
            raise


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _remove_quietly(directory: str) -> None:
    try:
        os.rmdir(directory)
    except OSError:
        return
