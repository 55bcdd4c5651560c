"""A sandbox without bubblewrap: a program that takes those of bubblewrap's options that sandbox.py uses.

Run by its path with `python -I -S`, never imported by the agent: it must know nothing of ours. It makes namespaces for
mounts, processes and IPC (as an ordinary user inside a namespace for users), puts a root together, and becomes three
processes as bubblewrap does: a monitor that ends with the job's exit code, the first process of the namespace, which
buries those whose parents are gone, and the job. What is not permitted ends it with one line before the job begins.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

_NEW_MOUNTS, _NEW_IPC, _NEW_USERS, _NEW_PIDS = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC, _REMOUNT = 1, 2, 4, 8, 32
_NO_ACCESS_TIME, _BIND, _RECURSIVE, _SLAVE, _RELATIVE_TIME = 1 << 10, 1 << 12, 1 << 14, 1 << 19, 1 << 21
_DETACH = 2
_NO_NEW_PRIVILEGES = 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_OLD, _NEW = "/oldroot", "/newroot"
#: How many words follow each option.
_OPTIONS = {
    "--dev-bind": 2,
    "--bind": 2,
    "--ro-bind": 2,
    "--symlink": 2,
    "--tmpfs": 1,
    "--dir": 1,
    "--proc": 1,
    "--perms": 1,
    "--size": 1,
    "--chdir": 1,
    "--unshare-pid": 0,
    "--unshare-ipc": 0,
}

_libc = ctypes.CDLL(None, use_errno=True)


class NotPermitted(Exception):
    """Something that the kernel does not let this user do."""


def main(words: Sequence[str]) -> int:
    """Make the sandbox that the options describe and run the command after `--` in it."""
    options, command = parse(words)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _enter_namespaces()
    # Where it was named by a link, what the link means here.
    real = [
        (name, (os.path.realpath(given[0]), *given[1:]) if name.endswith("bind") else given)
        for name, given in options
    ]
    reading, writing = os.pipe()
    inside = os.fork()
    if inside:
        os.close(writing)
        return _monitor(inside, reading)
    os.close(reading)
    _make_root(real)
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "give up the way to new privileges")
    os.chdir(next((given[0] for name, given in reversed(real) if name == "--chdir"), "/"))
    job = os.fork()
    if not job:
        os.close(writing)
        _become(command)
    _bury(job, writing)
    return 0


def parse(words: Sequence[str]) -> tuple[list[tuple[str, tuple[str, ...]]], list[str]]:
    """The options with their words, and the command; raises NotPermitted for an unknown option."""
    options: list[tuple[str, tuple[str, ...]]] = []
    place = 0
    while place < len(words) and words[place] != "--":
        name = words[place]
        if name not in _OPTIONS or len(words) <= place + _OPTIONS[name]:
            raise NotPermitted(f"there is no option {name}")
        count = _OPTIONS[name]
        options.append((name, tuple(words[place + 1 : place + 1 + count])))
        place += 1 + count
    return options, list(words[place + 1 :])


def _enter_namespaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    flags = _NEW_MOUNTS | _NEW_IPC | _NEW_PIDS | (_NEW_USERS if uid else 0)
    _checked(_libc.unshare(flags), "make namespaces")
    if uid:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    _mount(None, "/", None, _SLAVE | _RECURSIVE)


def _make_root(options: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    """Put the root together, beside the old one, and leave that."""
    _mount("tmpfs", "/tmp", "tmpfs", _NO_SUID | _NO_DEVICES, "mode=0755")
    for name in (_OLD, _NEW):
        os.mkdir(f"/tmp{name}", 0o755)
    _pivot("/tmp", f"/tmp{_OLD}")
    os.chdir("/")
    # A root of parts is one of its own.
    _mount("tmpfs", _NEW, "tmpfs", _NO_SUID | _NO_DEVICES, "mode=0755")
    made = _Making()
    for name, given in options:
        made.take(name, given)
    _checked(_libc.umount2(_OLD.encode(), _DETACH), "leave the old root")
    os.chdir(_NEW)
    _pivot(".", ".")
    _checked(_libc.umount2(b".", _DETACH), "leave the root in between")
    os.chdir("/")


class _Making:
    """The steps of the new root; what --perms and --size say holds for the next one."""

    def __init__(self) -> None:
        self._mode: str | None = None
        self._size: str | None = None

    def take(self, name: str, given: tuple[str, ...]) -> None:
        if name == "--perms":
            self._mode = given[0]
        elif name == "--size":
            self._size = given[0]
        elif name in {"--bind", "--dev-bind", "--ro-bind"}:
            _bind(*given, read_only=name == "--ro-bind")
        elif name in _STEPS:
            _STEPS[name](*given, self._mode, self._size)
            self._mode = self._size = None


def _bind(source: str, seen: str, *, read_only: bool) -> None:
    there, place = _OLD + source, _NEW + seen
    if seen != "/":
        _make(place, directory=os.path.isdir(there))
    _mount(there, place, None, _BIND | _RECURSIVE)
    if read_only:
        # What was forbidden before must stay so, or the kernel refuses.
        known = os.statvfs(place).f_flag
        kept = known & (_NO_SUID | _NO_DEVICES | _NO_EXEC | _NO_ACCESS_TIME)
        kept |= _RELATIVE_TIME if known & 4096 else 0
        _mount(None, place, None, _BIND | _REMOUNT | _READ_ONLY | kept)


def _tmpfs(seen: str, mode: str | None, size: str | None) -> None:
    _make(_NEW + seen, directory=True)
    words = [f"mode={mode or '0755'}", *([f"size={size}"] if size else [])]
    _mount("tmpfs", _NEW + seen, "tmpfs", _NO_SUID | _NO_DEVICES, ",".join(words))


def _directory(seen: str, mode: str | None, _: str | None) -> None:
    if not os.path.isdir(_NEW + seen):
        _make(_NEW + seen, directory=True)
        os.chmod(_NEW + seen, int(mode or "0755", 8))


def _link(target: str, seen: str, _: str | None, __: str | None) -> None:
    os.makedirs(os.path.dirname(_NEW + seen), 0o755, exist_ok=True)
    os.symlink(target, _NEW + seen)


def _proc(seen: str, _: str | None, __: str | None) -> None:
    _make(_NEW + seen, directory=True)
    _mount("proc", _NEW + seen, "proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)


_STEPS: dict[str, Callable[..., None]] = {
    "--tmpfs": _tmpfs,
    "--dir": _directory,
    "--symlink": _link,
    "--proc": _proc,
}


def _make(path: str, *, directory: bool) -> None:
    """Make a place to mount on, unless there is one."""
    if os.path.lexists(path):
        return
    os.makedirs(path if directory else os.path.dirname(path), 0o755, exist_ok=True)
    if not directory:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _monitor(inside: int, reading: int) -> int:
    """Wait for the job's exit code; without one, for the end of its namespace."""
    told = os.read(reading, 4)
    if len(told) == 4:
        return int.from_bytes(told, "big")
    _, status = os.waitpid(inside, 0)
    return _exit_code(status) or 1


def _bury(job: int, writing: int) -> None:
    """Be the first process: tell how the job ended, and stay as long as anything of it is there."""
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in range(3):
        # Those who read the job's output would wait for this process too.
        os.dup2(nothing, number)
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        if pid == job:
            os.write(writing, _exit_code(status).to_bytes(4, "big"))
            os.close(writing)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(command: Sequence[str]) -> NoReturn:
    # Python ignores these two; what it starts would too.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(command[0], list(command), dict(os.environ))  # noqa: S606 - there is no shell to go through


def _pivot(new: str, old: str) -> None:
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise NotPermitted(f"the root cannot be changed on {os.uname().machine}")
    _checked(_libc.syscall(number, new.encode(), old.encode()), "change the root")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    told = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    _checked(_libc.mount(told[0], told[1], told[2], ctypes.c_ulong(flags), told[3]), f"mount {target}")


def _checked(answer: int, what: str) -> None:
    if answer < 0:
        raise NotPermitted(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


def _words() -> Iterator[str]:
    return (os.fsdecode(os.fsencode(word)) for word in sys.argv[1:])


if __name__ == "__main__":
    try:
        code = main(list(_words()))
    except (NotPermitted, OSError) as error:
        os.write(2, f"sandbox: {error}\n".encode())
        code = 1
    os._exit(code)
