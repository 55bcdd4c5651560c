"""A real Docker engine for tests: dockerd of its own, with a socket, data and images of its own below one directory.

The fixture `docker_engine` of tests/conftest.py starts one for all tests of a worker. Its one image,
`windfall-test:latest`, is made from a static busybox, so nothing is fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import require_part
from tests.waiting import wait_until
from windfall.agent.container.engine import Engine
from windfall.agent.container.errors import EngineError

IMAGE = "windfall-test:latest"
_TOOLS = (
    "sh",
    "cat",
    "sleep",
    "env",
    "id",
    "tail",
    "dd",
    "stat",
    "ls",
    "mount",
    "kill",
    "wc",
    "touch",
    "mkdir",
    "ps",
    "tr",
)
_NVIDIA_HOOK = """#!/bin/sh
{ echo "argv=$*"; cat; echo; } >> %s
exit 0
"""


class RunningEngine:
    """A dockerd that answers."""

    #: How people and inventories call it.
    kind = "docker"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "d.sock"
        self.log = directory / "engine.log"
        #: What the engine's NVIDIA hook was called with, and the container's configuration it was given.
        self.hook_calls = directory / "hook-calls"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def api(self) -> Engine:
        """How to ask it."""
        return Engine(str(self.socket), "1.41")

    def program(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that serves the socket, and the variables that it needs."""
        programs = self.directory / "bin"
        programs.mkdir(exist_ok=True)
        # dockerd registers NVIDIA's device driver when it finds this program.
        hook = programs / "nvidia-container-runtime-hook"
        hook.write_text(_NVIDIA_HOOK % self.hook_calls)
        hook.chmod(0o755)
        command = ["dockerd", "--storage-driver=vfs", "--iptables=false", "--bridge=none"]
        command += ["-H", f"unix://{self.socket}", "--data-root", f"{self.directory}/data"]
        command += ["--exec-root", f"{self.directory}/exec", "-p", f"{self.directory}/pid"]
        path = os.pathsep.join([str(programs), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        return command, {"PATH": path}

    def sweeping(self) -> list[str]:
        """Return the command that ends containers which outlive the engine."""
        return ["true"]

    def up(self) -> RunningEngine:
        """Start it, or start it again."""
        command, variables = self.program()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                # Podman's monitor leaves a file named `oom` in its directory when a container runs out of memory.
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, f"{command[0]} answers (see {self.log})")
        return self

    def down(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by its own process id."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)

    def has(self, name: str) -> bool:
        """Whether there is a container of that name, running or not."""
        return self.api.inspect(name) is not None

    def build_image(self, name: str = IMAGE, **config: Any) -> str:
        """Make an image with busybox and nothing else; `config` is the image's own (Cmd, Entrypoint, User, ...)."""
        line = _UnixConnection(self.socket)
        try:
            line.request(
                "POST",
                "/images/load?quiet=1",
                image_archive(name, config),
                {"Content-Type": "application/x-tar"},
            )
            answer = line.getresponse().read()
        finally:
            line.close()
        assert b"Loaded image" in answer, answer
        return name

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-2000:]
        try:
            return bool(self.api.version())
        except EngineError:
            return False


class _UnixConnection(http.client.HTTPConnection):
    """Python's own client, at a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("engine")
        self._path = path

    def connect(self) -> None:
        """Find the engine by its path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


def image_archive(name: str, config: dict[str, Any], extra: bytes = b"") -> bytes:
    """Return what `docker save` would: one layer with busybox under every name that tests use."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "run", "proc", "dev", "sys", "data"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(os.path.realpath(busybox), "bin/busybox")
        for tool in _TOOLS:
            link = tarfile.TarInfo(f"bin/{tool}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        passwd = b"root:x:0:0:root:/:/bin/sh\nworker:x:1234:2345:worker:/:/bin/sh\n"
        group = b"root:x:0:\nworkers:x:2345:\n"
        for path, content in (("etc/passwd", passwd), ("etc/group", group), ("data/extra", extra)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    described = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin", "FROM_IMAGE=yes"], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    files = {
        "layer.tar": layer.getvalue(),
        "config.json": json.dumps(described).encode(),
        "manifest.json": json.dumps(
            [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        ).encode(),
    }
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


@contextlib.contextmanager
def running_engine(kind: type[RunningEngine] = RunningEngine) -> Iterator[RunningEngine]:
    """Start an engine with a directory of its own, and leave nothing of it."""
    directory = Path(tempfile.mkdtemp(prefix=f"windfall-{kind.kind}-"))
    engine = kind(directory)
    guard = None
    try:
        engine.up()
        assert engine._process is not None
        # Not even a killed test session may leave it.
        guard = subprocess.Popen(
            ["sh", "-c", f"cat; kill {engine._process.pid} 2>/dev/null; {shlex.join(engine.sweeping())}"],
            stdout=subprocess.DEVNULL,
            stdin=subprocess.PIPE,
            # Whoever kills a test session by its group must not take this with it.
            start_new_session=True,
        )
        engine.build_image()
        yield engine
    finally:
        with contextlib.suppress(EngineError):
            for one in engine.api.containers("windfall.agent") if engine._process is not None else []:
                engine.api.remove(str(one["Id"]))
        engine.down()
        if guard is not None:
            guard.communicate(timeout=120)
        _unmount(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _unmount(directory: Path) -> None:
    """Let go of what containers of a killed engine have left mounted."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounted = [line.split()[1] for line in file if str(directory) in line.split()[1]]
    for path in sorted(mounted, reverse=True):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


def require_docker() -> None:
    """Skip where a real engine cannot be started; in CI that is a failure."""
    require_part(os.geteuid() == 0, "dockerd needs root")
    for program, package in (("dockerd", "docker.io"), ("busybox", "busybox-static")):
        require_part(shutil.which(program) is not None, f"{program} is not installed (Debian: {package})")
