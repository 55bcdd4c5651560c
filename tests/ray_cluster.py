"""A real Ray cluster on loopback for tests: nodes are started by `ray start`, and ended by their process ids alone.

`ray stop` is never used: it ends every Ray process of the machine by name. RAY_PYTHON names a Python that has Ray.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.conftest import require_part
from tests.waiting import wait_until

#: Below the ports that Ray keeps for its workers.
_PORTS = range(7400, 9900)


def ray_python() -> str:
    """The Python that has Ray; empty if nobody named one."""
    return os.environ.get("RAY_PYTHON", "")


def require_ray() -> str:
    """The Python that has Ray; skips the test, or fails it in CI, where there is none."""
    require_part(
        os.access(ray_python(), os.X_OK),
        "Ray is not there: pip install ray==2.60.0 into an environment of its own, and set RAY_PYTHON to its Python",
    )
    return ray_python()


class RayCluster:
    """A head and nodes, each at an address of the loopback network. Use it as a context."""

    def __init__(self, *, token: bool = True) -> None:
        self._python = require_ray()
        self._home = tempfile.TemporaryDirectory(prefix="wf-ray-")
        self._token = secrets.token_hex(32) if token else ""
        self._port = _free_port()
        #: Session of the processes of each node, by its address.
        self._sessions: dict[str, int] = {}

    def __enter__(self) -> RayCluster:
        """Starts the head, which takes no work."""
        self._start(
            "127.0.0.1",
            "--head",
            f"--port={self._port}",
            "--num-cpus=0",
            "--include-dashboard=false",
            f"--temp-dir={self._home.name}/r",
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends every process that was started here."""
        for address in list(self._sessions):
            self.kill(address)
        self._home.cleanup()

    @property
    def address(self) -> str:
        """Where the head is."""
        return f"127.0.0.1:{self._port}"

    @property
    def command(self) -> str:
        """What `--ray` is given for this cluster; the token lies in a file."""
        words = ["env", f"RAY_ADDRESS={self.address}"]
        if self._token:
            path = Path(self._home.name, "token")
            path.write_text(self._token)
            path.chmod(0o600)
            words.append(f"RAY_AUTH_TOKEN_PATH={path}")
        return " ".join(words)

    @property
    def python(self) -> str:
        """The cluster's Python."""
        return self._python

    def add(self, address: str, *options: str) -> None:
        """Starts a node at an address of the loopback network."""
        self._start(address, f"--address={self.address}", "--num-cpus=2", *options)

    def run(self, program: str) -> str:
        """Runs a program under the cluster's Python, as a driver of it, and returns what it prints."""
        environment = self._environment() | {"RAY_ADDRESS": self.address}
        done = subprocess.run(
            [self._python, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def kill(self, address: str) -> None:
        """Kills all processes of a node at once."""
        session = self._sessions.pop(address)
        for pid in _pids_of(session):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _pids_of(session), f"the node {address} has ended")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_"))}
        kept["RAY_USAGE_STATS_ENABLED"] = "0"
        # Ray asks the route to an outside address for its own; a token is a secret of the environment.
        if self._token:
            kept |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        return kept

    def _start(self, address: str, *options: str) -> None:
        command = [self._python, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={address}"]
        command += ["--object-store-memory=80000000", "--disable-usage-stats", *options]
        with Path(self._home.name, f"{address}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions[address] = process.pid
        status = process.wait(timeout=120)
        assert status == 0, Path(self._home.name, f"{address}.log").read_text()[-4000:]


def _pids_of(session: int) -> list[int]:
    """The processes of a session, and those that Ray's workers have begun in sessions of their own."""
    parents: dict[int, int] = {}
    mine = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in ("Z", "X"):
                parents[int(entry.name)] = int(fields[1])
                if int(fields[3]) == session:
                    mine.add(int(entry.name))
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in mine}
        grown = not below <= mine
        mine |= below
    return sorted(mine)


def _free_port() -> int:
    for port in secrets.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as candidate:
            if candidate.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no port is free")
