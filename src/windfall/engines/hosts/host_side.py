"""Runs on a host, sent there over ssh: looks what is there, installs Windfall, starts and ends the agent, cleans up.

Read from standard input and executed by the host's own Python (3.11 or later) before anything is installed, so it is
one file of the standard library alone. The daemon's request is the JSON line after it; the archive of an installation
follows. One line answers, after a mark that no login shell prints. Must not know jobs or messages.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

#: Temporary directories of installations that were killed are removed after this time.
_STALE_S = 3600.0
_LEAST_FREE_BYTES = 200 << 20
_PIP_WITHIN_S = 600
_NEW = ".new-"


class Refusal(Exception):
    """The request cannot be done; the text says what to do."""


def look(request: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """What this host is, and whether an installation is there."""
    base = _base(request)
    return {
        "base": base,
        "uid": os.getuid(),
        "python": sys.executable,
        "version": list(sys.version_info[:3]),
        "tag": str(sys.implementation.cache_tag),
        "machine": os.uname().machine,
        "libc": _libc(),
        "hostname": os.uname().nodename,
        "vcpus": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "free_bytes": _free_bytes(base),
        "client": os.environ.get("SSH_CONNECTION", "").split(" ")[0],
        "address": (os.environ.get("SSH_CONNECTION", "").split(" ") + [""] * 3)[2],
        "boot_id": boot_id(),
    }


def boot_id() -> str:
    """What tells this start of this kernel from all others; empty where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def install(request: dict[str, Any], payload: BinaryIO) -> dict[str, Any]:
    """Unpack the archive that follows, add what the index has if asked to, try it, and give it its name at the end."""
    archive = payload.read(request["size"])
    if len(archive) != request["size"] or hashlib.sha256(archive).hexdigest() != request["sha256"]:
        raise Refusal("what was sent did not arrive whole: try again")
    base, site = _base(request), _site(request)
    os.makedirs(base, 0o711, exist_ok=True)
    if _free_bytes(base) < _LEAST_FREE_BYTES:
        raise Refusal(
            f"No space left on device: {base} has {_free_bytes(base) >> 20} MiB free, and {_LEAST_FREE_BYTES >> 20}"
            " are needed; free some space there, or choose another place with --directory"
        )
    # Two daemons at once take turns; the second finds what the first has done.
    with _locked(base):
        _remove_stale(base)
        if not os.path.isdir(site) or _fault_of(site):
            _install_anew(archive, request["requirements"], site)
    return {"site": site}


def _install_anew(archive: bytes, requirements: list[str], site: str) -> None:
    fresh = os.path.join(os.path.dirname(site), f"{_NEW}{os.getpid()}-{time.time_ns()}")
    os.mkdir(fresh, 0o755)
    try:
        _unpack(archive, fresh)
        if requirements:
            _add_from_index(fresh, requirements)
        if fault := _fault_of(fresh):
            raise Refusal(f"what was installed cannot be loaded there: {fault}")
        os.sync()
        if os.path.isdir(site):
            os.rename(site, f"{fresh}-damaged")
        os.rename(fresh, site)
    finally:
        for path in (fresh, f"{fresh}-damaged"):
            shutil.rmtree(path, ignore_errors=True)


def bring_up(request: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Make sure that an agent of this installation serves; `damaged` says why the installation cannot do that."""
    site = _site(request)
    if not os.path.isdir(site):
        return {"damaged": "it is not installed"}
    for name in [name for name in os.environ if name.startswith("SSH_")]:
        del os.environ[name]
    sys.path.insert(0, site)
    try:
        import asyncio

        import msgspec

        from windfall.agent.errors import AgentError, AgentUnfit
        from windfall.agent.reach import UnixReach
        from windfall.agent.settings import AgentSettings
    except (ImportError, OSError, SyntaxError) as error:
        return {"damaged": f"it cannot be loaded: {error}"}
    settings = msgspec.convert(request["settings"], AgentSettings)
    for folder in request["directories"]:
        os.makedirs(folder, 0o711 if folder == request["root"] else 0o700, exist_ok=True)
    try:
        asyncio.run(UnixReach(settings).bring_up())
    except AgentUnfit as error:
        return {"unfit": str(error)}
    except AgentError as error:
        raise Refusal(str(error)) from None
    return {"digest": settings.digest}


def check_up(request: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Run the doctor of the installation and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": _site(request)}
    command = [sys.executable, "-P", "-m", "windfall.agent.checkup", json.dumps(request["settings"])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise Refusal(f"the doctor cannot be run there: {_last_line(done.stderr)}")
    return dict(json.loads(done.stdout))


def remove(request: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Remove what an agent that has ended left, unless something there was not stored yet.

    With its last agent go the installations.
    """
    root, base = request["root"], _base(request)
    if not os.path.isdir(root):
        return {"kept": ""}
    agent = os.path.join(root, "agent")
    if _is_served(agent):
        return {"kept": "its agent still runs"}
    for folder in (os.path.join(agent, "unstored"), os.path.join(root, "attempts")):
        if not request["force"] and any(names for _, _, names in os.walk(folder)):
            return {
                "kept": f"{folder} has files of jobs that were not stored: take what you need, then remove {root}"
            }
    shutil.rmtree(root)
    for folder in (os.path.dirname(root), os.path.join(base, "agents")):
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
    if not os.path.isdir(os.path.join(base, "agents")):
        for name in os.listdir(base):
            if _is_installation(os.path.join(base, name)):
                shutil.rmtree(os.path.join(base, name), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(base, ".lock"))
            os.rmdir(base)
    return {"kept": ""}


def _base(request: dict[str, Any]) -> str:
    """Where everything of Windfall is on this host. Root's jobs run as others, who could not pass through its home."""
    if request.get("base"):
        return str(request["base"])
    return "/var/lib/windfall-host" if os.getuid() == 0 else os.path.expanduser("~/.windfall")


def _site(request: dict[str, Any]) -> str:
    return os.path.join(_base(request), request["name"])


def _is_installation(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "windfall", "__init__.py"))


def _libc() -> str:
    try:
        return str(os.confstr("CS_GNU_LIBC_VERSION")).partition(" ")[0]
    except (ValueError, OSError):
        return "other"


def _free_bytes(path: str) -> int:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _remove_stale(base: str) -> None:
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if name.startswith(_NEW) and time.time() - os.lstat(path).st_mtime > _STALE_S:
            shutil.rmtree(path, ignore_errors=True)


def _unpack(archive: bytes, folder: str) -> None:
    """Only plain files, each below the folder."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as bundle:
        for member in bundle:
            path = os.path.normpath(os.path.join(folder, member.name))
            content = bundle.extractfile(member) if member.isfile() else None
            if content is None or not path.startswith(folder + os.sep):
                raise Refusal(f"the archive has something unexpected: {member.name!r}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                shutil.copyfileobj(content, file)


def _add_from_index(folder: str, requirements: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--target", folder, "--only-binary", ":all:", "--", *requirements]
    version = ".".join(str(part) for part in sys.version_info[:2])
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PIP_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise Refusal(
            f"pip has not ended after {_PIP_WITHIN_S} s: does this host reach the package index?"
        ) from None
    if "No module named pip" in done.stderr:
        raise Refusal(
            f"Python {version} here has no pip, and is not the daemon's version, whose packages could be sent: install"
            " pip (Debian: python3-pip), or name a Python of the daemon's version with --python"
        )
    if done.returncode != 0:
        raise Refusal(f"pip cannot install {' '.join(requirements)}: {_last_line(done.stderr)}")


def _fault_of(folder: str) -> str:
    """Why an agent cannot be run from an installation; empty if it can."""
    command = [
        sys.executable,
        "-P",
        "-c",
        "import windfall.agent.serve, windfall.agent.steward, obstore, pynvml",
    ]
    environment = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return _last_line(done.stderr) if done.returncode != 0 else ""


@contextlib.contextmanager
def _locked(base: str) -> Iterator[None]:
    fd = os.open(os.path.join(base, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_served(directory: str) -> bool:
    """Whether a warden or an agent holds the directory's lock."""
    try:
        fd = os.open(os.path.join(directory, "warden.lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it says nothing"


_REQUESTS = {
    "look": look,
    "install": install,
    "bring_up": bring_up,
    "check_up": check_up,
    "remove": remove,
}


def main() -> None:
    """Do the one request that follows this text."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        answer = _REQUESTS[request["request"]](request, sys.stdin.buffer)
    except Refusal as refusal:
        answer = {"refused": str(refusal)}
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        answer = {"refused": f"{place}{error.strerror or error}"}
    sys.stdout.write(f"\n{request['mark']} {json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
