"""`python -m windfall.daemon.s3_companion SETTINGS`: the process beside SeaweedFS, which lives exactly as long.

It listens at the S3 server's address and relays requests (s3_relay.py). It wraps the keys of objects with aws:kms
(s3_key_wrapping.py). It updates SeaweedFS's keys when the API's keys.json or what tenants own changes, even while
no daemon runs. And it bounds their log. Ends when SeaweedFS has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

import msgspec

from windfall.aws_api.protocol.errors import KeyFileError
from windfall.aws_api.protocol.keys import Key, load_keys
from windfall.daemon.s3_identities import identity_names, secret_of, server_configuration, session_secret
from windfall.daemon.s3_key_wrapping import DEFAULT_KEY_ID, KeyWrapping
from windfall.daemon.s3_relay import serve_relay
from windfall.daemon.s3_resigning import completed, lacks_key
from windfall.daemon.s3_secrets import S3Secrets, ensure_secrets
from windfall.jobs.storage import Grant

HOST = "127.0.0.1"
#: The file that says what belongs to which tenant; the daemon writes it.
TENANTS_NAME = "tenants.json"
#: How soon a changed file is noticed.
_LOOK_EVERY_S = 0.1
#: How soon SeaweedFS must have been started.
_BEGIN_WITHIN_S = 60.0
_HEAD_LIMIT_BYTES = 64 * 1024
#: The log that both processes append to, and how large it grows before it is put aside.
LOG_NAME, LOG_BYTES_MAX = "seaweedfs.log", 10 << 20


class CompanionSettings(msgspec.Struct, frozen=True):
    """What the companion is started with."""

    directory: str
    port: int
    upstream_port: int
    key_service_port: int
    #: The API's keys; None serves the daemon and its agents alone.
    keys_file: str | None = None
    #: Where it listens besides loopback; empty for nowhere else.
    listen: str = ""


def write_configuration(settings: CompanionSettings) -> bool:
    """Write SeaweedFS's configuration again; returns whether it has changed.

    A key file that cannot be trusted admits no key, as at the API.
    """
    directory = Path(settings.directory)
    path = directory / "keys.json"
    before = path.read_text() if path.exists() else ""
    keys: Sequence[Key] = ()
    if settings.keys_file is not None:
        with contextlib.suppress(KeyFileError):
            keys = load_keys(Path(settings.keys_file))
    text = server_configuration(
        keys,
        read_tenants(directory),
        ensure_secrets(directory / "secrets.json"),
        before=identity_names(before),
        key_service=f"http://{HOST}:{settings.key_service_port}",
    )
    if text == before:
        return False
    write_private(path, text)
    return True


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that other users cannot read."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


def bound_log(path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Put a large log aside as `NAME.1`, the one before it is lost. Processes that append to it go on in the empty one.

    It is copied and emptied, because SeaweedFS keeps it open. Where the disk is full, only emptying it helps.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size <= bytes_max:
            return
        with contextlib.suppress(OSError):
            shutil.copy2(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)


def read_tenants(directory: Path) -> dict[str, list[Grant]]:
    """What belongs to which tenant, as the daemon last wrote it."""
    path = directory / TENANTS_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Grant]])
    except (OSError, msgspec.MsgspecError):
        return {}


class _Companion:
    def __init__(self, settings: CompanionSettings) -> None:
        self._settings = settings
        self._directory = Path(settings.directory)
        self._secrets: S3Secrets = ensure_secrets(self._directory / "secrets.json")
        self._wrapping = KeyWrapping(self._secrets.wrapping, self._secrets.wrapping_token)
        self._seen: tuple[object, ...] = ()

    async def run(self) -> None:
        """Serve until SeaweedFS is gone."""
        settings = self._settings
        hosts = [HOST, settings.listen] if settings.listen else [HOST]
        relay = await serve_relay(hosts, settings.port, (HOST, settings.upstream_port), self._complete)
        keys = await asyncio.start_server(self._serve_keys, HOST, settings.key_service_port)
        waited_s = 0.0
        while waited_s < _BEGIN_WITHIN_S and relay.is_serving() and keys.is_serving():
            pid = self._server_pid()
            if pid is None:
                waited_s += _LOOK_EVERY_S
            elif _lives(pid):
                self._follow(pid)
                bound_log(self._directory / LOG_NAME)
            else:
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        # Not a normal exit, which would wait for clients: there is no server behind this address any more.
        os._exit(0)

    def _server_pid(self) -> int | None:
        """SeaweedFS's process; None while none is recorded for this companion."""
        try:
            state = json.loads((self._directory / "server.json").read_text())
            return int(state["pid"]) if state.get("companion_pid") == os.getpid() else None
        except (OSError, ValueError, KeyError, AttributeError):
            return None

    def _follow(self, pid: int) -> None:
        """Make SeaweedFS reload keys and tenants when they have changed."""
        watched = [self._directory / TENANTS_NAME]
        if self._settings.keys_file is not None:
            watched.append(Path(self._settings.keys_file))
        seen = tuple(_fingerprint(path) for path in watched)
        if seen == self._seen:
            return
        if write_configuration(self._settings):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)
        self._seen = seen

    def _complete(self, head: bytes) -> bytes:
        return completed(head, DEFAULT_KEY_ID, self._find_secret) if lacks_key(head) else head

    def _find_secret(self, access_key_id: str, token: str) -> str | None:
        if token:
            return session_secret(token, self._secrets.sessions)
        return secret_of((self._directory / "keys.json").read_text(), access_key_id)

    async def _serve_keys(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
                headers = {
                    name.strip().lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines)
                }
                body = await reader.readexactly(
                    min(int(headers.get("content-length", "0")), _HEAD_LIMIT_BYTES)
                )
                status, answer = self._wrapping.answer(
                    first.split(" ")[1], headers.get("x-vault-token", ""), body
                )
                content = json.dumps(answer).encode()
                writer.write(
                    f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(content)}\r\n\r\n".encode()
                    + content
                )
                await writer.drain()
        writer.close()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _fingerprint(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size


def main(arguments: Sequence[str]) -> int:
    """Be the companion of one S3 server."""
    import uvloop

    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = msgspec.json.decode(arguments[0], type=CompanionSettings)
    uvloop.run(_Companion(settings).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
