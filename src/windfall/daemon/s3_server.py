"""A real S3 server for users who have none: SeaweedFS, started beside the daemon on loopback.

Decides its ports and processes, and that it outlives the daemon: jobs go on without the daemon and must be able to
store their checkpoints. The next daemon adopts it, at the same address; only `stop` ends it. Daemons that share a
directory and start at the same moment share one server. SeaweedFS is an optional extra, looked for only when it is
needed. s3_identities.py decides who may use it. Must not know what is stored in it, nor SeaweedFS's options.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from windfall.daemon.detached import end_detached, lives, start_detached, started_ticks
from windfall.daemon.s3_companion import (
    HOST,
    LOG_NAME,
    TENANTS_NAME,
    CompanionSettings,
    read_tenants,
    write_configuration,
    write_private,
)
from windfall.daemon.s3_identities import Tenants, policies, session_configuration
from windfall.daemon.s3_secrets import S3Secrets, ensure_secrets
from windfall.daemon.seaweedfs import S3ServerError, find_program, server_command, server_environment
from windfall.jobs.storage import S3, locate

BUCKET = "windfall"
#: 409: it exists already.
_BUCKET_IS_THERE = (200, 409)
#: Written and removed at each start, to test that objects can be written and read.
_PROBE = ".ready"
#: All ports except the companion's, which is the server's address.
_PORTS = (
    "upstream",
    "key_service",
    "master",
    "master_grpc",
    "volume",
    "volume_grpc",
    "filer",
    "filer_grpc",
    "s3_grpc",
)
#: Increased whenever a server of an older version cannot be adopted.
_ARRANGEMENT = 2
#: SeaweedFS takes 15 seconds to end by itself; what it has acknowledged survives SIGKILL.
_GRACE_S = 3.0
_POLL_S = 0.05
_TRIES = 3
_PORT_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class _Running:
    """A started server: enough to find it again and to identify it with certainty."""

    pid: int
    #: In clock ticks since boot; a pid alone may have been reused.
    started_ticks: int
    ports: dict[str, int]
    companion_pid: int = 0
    companion_ticks: int = 0
    arrangement: int = 0
    #: The policies that it was started with: it reads them only then.
    policies: tuple[str, ...] = ()
    #: Where it listens besides loopback.
    listen: str = ""


class S3Server:
    """SeaweedFS with its files below one directory."""

    def __init__(
        self, directory: Path, port: int = 0, keys_file: Path | None = None, listen: str = ""
    ) -> None:
        """`listen` is an address besides loopback."""
        self._directory = directory
        self._listen = listen
        self._port = port
        self._keys_file = keys_file

    @property
    def secrets(self) -> S3Secrets:
        """Its secrets; they exist after its first start."""
        return ensure_secrets(self._directory / "secrets.json")

    @property
    def url(self) -> str | None:
        """Where it answers, or last answered; None before its first start."""
        running = self._read()
        return None if running is None else f"http://{HOST}:{running.ports['s3']}"

    @property
    def url_for_machines(self) -> str | None:
        """Where other machines reach it; None where they do not."""
        running = self._read()
        if running is None or not running.listen:
            return None
        return f"http://{running.listen}:{running.ports['s3']}"

    @property
    def pid(self) -> int | None:
        """Its process, while it and its companion live."""
        running = self._read()
        return running.pid if running is not None and _all_live(running) else None

    @property
    def tenants(self) -> Tenants:
        """What belongs to which tenant."""
        return read_tenants(self._directory)

    def make_buckets(self, tenants: Tenants) -> None:
        """Make the tenants' buckets that do not exist yet."""
        places = [locate(grant.uri) for grants in tenants.values() for grant in grants]
        for bucket in sorted({name for place in places if place.scheme == S3 for name in place.segments[:1]}):
            self.make_bucket(bucket)

    def set_tenants(self, tenants: Tenants) -> None:
        """Record what belongs to which tenant. A running server reloads it; `start` restarts it if necessary."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._directory / TENANTS_NAME, msgspec.json.encode(tenants).decode())

    def start(self, timeout_s: float = 60.0) -> str:
        """Adopt the running server, or start one, and wait until it takes objects; returns its address."""
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
        """End the server, whichever daemon started it; only its files remain."""
        if self._read() is not None:
            with self._alone(time.monotonic() + timeout_s):
                self._end()

    @contextlib.contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Keep other daemons of this directory from starting or ending the server meanwhile."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The kernel releases the lock when its holder is killed, and the next daemon then adopts or starts.
        with (self._directory / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise S3ServerError(
                            f"another process is still starting the S3 server in {self._directory};"
                            " try again, or see seaweedfs.log there"
                        ) from None
                time.sleep(_POLL_S)
            yield

    def _end(self) -> None:
        running = self._read()
        if running is None:
            return
        for pid, ticks in _processes(running):
            end_detached(pid, ticks, _GRACE_S)
        for name, port in running.ports.items():
            # SeaweedFS makes these itself and does not always remove them.
            kind = name.removesuffix("_grpc")
            with contextlib.suppress(OSError):  # Another user's server left one for the same port.
                Path(f"/tmp/seaweedfs-{kind}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108 (its choice)

    def _can_be_adopted(self) -> bool:
        running = self._read()
        if running is None or not _all_live(running):
            return False
        as_wanted = running.arrangement == _ARRANGEMENT and self._port in (0, running.ports["s3"])
        as_wanted = as_wanted and running.listen == self._listen
        return as_wanted and set(policies(read_tenants(self._directory))) <= set(running.policies)

    def _start(self, deadline: float) -> None:
        program = find_program()
        for attempt in range(_TRIES):
            ports = self._choose_ports(again=attempt > 0)
            self._launch(program, ports)
            try:
                self._wait_until_ready(deadline)
            except S3ServerError:
                # Another process may have taken a port between choosing and binding; a fixed port stays taken.
                self._end()
                if attempt + 1 == _TRIES or time.monotonic() >= deadline:
                    raise
            else:
                return

    def _launch(self, program: str, ports: dict[str, int]) -> None:
        objects = self._directory / "objects"
        objects.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory.chmod(0o700)
        secrets = ensure_secrets(self._directory / "secrets.json")
        settings = CompanionSettings(
            str(self._directory),
            ports["s3"],
            ports["upstream"],
            ports["key_service"],
            None if self._keys_file is None else str(self._keys_file),
            self._listen,
        )
        # Identities of an earlier server are dropped.
        (self._directory / "keys.json").unlink(missing_ok=True)
        write_configuration(settings)
        for name, text in (
            ("sessions.json", session_configuration(secrets)),
            ("inner.crt", secrets.certificate),
            ("inner.key", secrets.certificate_key),
        ):
            write_private(self._directory / name, text)
        log = self._directory / LOG_NAME
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        companion = [
            sys.executable,
            "-m",
            "windfall.daemon.s3_companion",
            msgspec.json.encode(settings).decode(),
        ]
        environment = {"PATH": os.defpath, "HOME": str(self._directory)}
        keeper = self._detached(companion, environment)
        pid = self._detached(
            server_command(program, objects, ports),
            environment | server_environment(self._directory, secrets),
        )
        running = _Running(
            pid,
            started_ticks(pid) or 0,
            ports,
            keeper,
            started_ticks(keeper) or 0,
            _ARRANGEMENT,
            tuple(policies(read_tenants(self._directory))),
            self._listen,
        )
        write_private(self._state_file, json.dumps(asdict(running)))

    def _detached(self, command: list[str], environment: dict[str, str]) -> int:
        return start_detached(command, environment, self._directory, self._directory / LOG_NAME)

    def _choose_ports(self, *, again: bool) -> dict[str, int]:
        """The ports of the last start if they are free, so that running jobs find the server again."""
        last = self._read()
        wanted_s3 = self._port or (last.ports["s3"] if last is not None and not again else 0)
        deadline = time.monotonic() + _PORT_WAIT_S
        while not _is_free(wanted_s3) and time.monotonic() < deadline:
            time.sleep(_POLL_S)  # a killed process releases its sockets a moment later
        with contextlib.ExitStack() as reserved:
            s3 = reserved.enter_context(_free_port(wanted_s3 if _is_free(wanted_s3) or self._port else 0))
            if self._listen:
                reserved.enter_context(_free_port(s3, self._listen))
            return {"s3": s3, **{name: reserved.enter_context(_free_port(0)) for name in _PORTS}}

    def _wait_until_ready(self, deadline: float) -> None:
        running = self._read()
        assert running is not None
        last = "it does not listen yet"
        while time.monotonic() < deadline:
            if not _all_live(running):
                raise S3ServerError(f"SeaweedFS ended right away: {self._last_words()}")
            try:
                last = self._try_out(running.ports["s3"])
            except OSError as error:
                last = str(error)
            if not last:
                return
            time.sleep(_POLL_S)
        raise S3ServerError(f"SeaweedFS was not ready in time ({last}); see {self._directory / LOG_NAME}")

    def make_bucket(self, name: str, timeout_s: float = 30.0) -> None:
        """Make a bucket; an existing one is left as it is. A server that is just restarting is waited for."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = self._read()
            if running is None:
                raise S3ServerError(f"cannot make bucket {name}: the S3 server was never started")
            try:
                status = self._request(running.ports["s3"], "PUT", f"/{name}")
                trouble = f"SeaweedFS answered {status}"
            except OSError as error:
                status, trouble = 503, str(error)
            if status in _BUCKET_IS_THERE:
                return
            if status < 500 or time.monotonic() >= deadline:
                raise S3ServerError(
                    f"cannot make bucket {name}: {trouble}; see {self._directory / LOG_NAME}, or try again later"
                )
            time.sleep(_POLL_S)

    def _try_out(self, port: int) -> str:
        """Make the bucket, then write, read and remove an object; returns what failed, or an empty string.

        A bucket alone proves little: it exists before the volumes do, and until then objects cannot be read.
        """
        steps: list[tuple[str, str, tuple[int, ...]]] = [
            ("PUT", f"/{BUCKET}", _BUCKET_IS_THERE),
            ("PUT", f"/{BUCKET}/{_PROBE}", (200,)),
            ("GET", f"/{BUCKET}/{_PROBE}", (200,)),
            ("DELETE", f"/{BUCKET}/{_PROBE}", (204,)),
        ]
        for method, path, welcome in steps:
            status = self._request(port, method, path)
            if status == 403:
                raise S3ServerError(f"another S3 server uses port {port}; choose another with --s3-port")
            if status not in welcome:
                return f"it answered {status} to {method} {path}"
        return ""

    def _request(self, port: int, method: str, path: str) -> int:
        # Imported here, because they take longer to load than most daemons need to start.
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        body = b"ready" if path.endswith(_PROBE) and method == "PUT" else b""
        request = AWSRequest(method, f"http://{HOST}:{port}{path}", data=body)
        secrets = self.secrets
        keys = Credentials(secrets.root_key_id, secrets.root_secret)
        S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request(method, path, body, dict(request.headers.items()))
            return connection.getresponse().status
        except http.client.HTTPException as error:
            raise ConnectionError(f"not a valid HTTP answer: {error!r}") from error
        finally:
            connection.close()

    @property
    def _state_file(self) -> Path:
        return self._directory / "server.json"

    def _read(self) -> _Running | None:
        try:
            # Members of another version are ignored.
            return msgspec.json.decode(self._state_file.read_bytes(), type=_Running)
        except (OSError, msgspec.MsgspecError):
            return None

    def _last_words(self) -> str:
        lines = (self._directory / LOG_NAME).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"


@contextlib.contextmanager
def _free_port(wanted: int, host: str = HOST) -> Iterator[int]:
    """A port that stays reserved until all have been chosen."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, wanted))
        except OSError as error:
            if host != HOST:
                raise S3ServerError(
                    f"the S3 server cannot listen at {host}:{wanted}: {error.strerror}; give --s3-listen an address of"
                    " this host, or choose another port with --s3-port"
                ) from error
            raise S3ServerError(
                f"port {wanted} for the S3 server cannot be used: {error.strerror}; choose another with --s3-port"
            ) from error
        yield bound.getsockname()[1]


def _is_free(port: int) -> bool:
    try:
        with _free_port(port):
            return True
    except S3ServerError:
        return False


def _processes(running: _Running) -> list[tuple[int, int]]:
    return [(running.pid, running.started_ticks), (running.companion_pid, running.companion_ticks)]


def _all_live(running: _Running) -> bool:
    return all(lives(pid, ticks) for pid, ticks in _processes(running))
