"""`python -m windfall.usher.process SETTINGS`: the usher's process, a child of its warden.

Decides how it begins and ends: it listens where it listened before, follows the table and the keys, answers `stats` on
its socket, and on SIGTERM stops to accept, finishes what it has and ends. Must not know requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

import windfall
from windfall.agent.socket_paths import short_path
from windfall.agent.warden import SHUTDOWN_CODE
from windfall.aws_api.protocol.errors import KeyFileError
from windfall.aws_api.protocol.keys import KeyRing
from windfall.hosting.traffic import UsherTraffic
from windfall.usher.service import SWEEP_EVERY_S, UsherService
from windfall.usher.table_file import TableFollower

SOCKET_NAME = "usher.sock"
#: Where it listens, for the daemon and for its own next start.
ADDRESS_NAME = "address"
#: For how long it finishes requests when it is told to end.
DRAIN_S = 60.0
#: How soon a changed table is in use.
_LOOK_EVERY_S = 0.05
_BACKLOG = 1024
#: What a question may have.
_LINE_BYTES = 4096

log = logging.getLogger(__name__)


class UsherSettings(msgspec.Struct, frozen=True):
    """What an usher is started with."""

    directory: str
    keys_file: str
    host: str = "127.0.0.1"
    port: int = 8472
    #: Whether only this port will do; otherwise it takes a free one where it is in use.
    exact: bool = False


class _Process:
    def __init__(self, settings: UsherSettings) -> None:
        self._directory = Path(settings.directory)
        self._settings = settings
        self._keys = KeyRing(Path(settings.keys_file))
        self._service = UsherService(self._keys.find, self._follow)
        self._follower = TableFollower(self._directory)
        self._since_ms = time.time_ns() // 1_000_000
        self._ending = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        self._follow()
        listening = listen(self._settings, _address_before(self._directory, self._settings))
        server = await loop.create_server(self._service.connect, sock=listening, backlog=_BACKLOG)
        questions = await self._answer_questions()
        host, port = listening.getsockname()[:2]
        write_address(self._directory, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        log.warning("usher %s listens on %s:%d", windfall.__version__, host, port)
        looking = asyncio.create_task(self._look())
        sweeping = asyncio.create_task(self._sweep())
        ending = asyncio.create_task(self._ending.wait())
        done, _ = await asyncio.wait([looking, sweeping, ending], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {ending}:
            task.result()  # A part that ended by itself has failed; the warden starts another usher.
        server.close()
        await self._drain()
        questions.close()
        return SHUTDOWN_CODE

    def _follow(self) -> None:
        if self._follower.changed():
            self._service.follow(self._follower.table)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self._follow()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self._service.sweep()

    async def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        while self._service.clients and time.monotonic() < deadline:
            for client in list(self._service.clients):
                client.close_if_idle()
            await asyncio.sleep(0.02)

    async def _answer_questions(self) -> asyncio.Server:
        path = self._directory / SOCKET_NAME
        path.unlink(missing_ok=True)
        with short_path(str(path)) as name:
            server = await asyncio.start_unix_server(self._answer, name, limit=_LINE_BYTES)
        path.chmod(0o600)
        return server

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.LimitOverrunError):
            while line := await reader.readline():
                self._follow()
                said = self._traffic() if line.strip() == b"stats" else {"error": "ask for stats"}
                writer.write(msgspec.json.encode(said) + b"\n")
                await writer.drain()
        writer.close()

    def _traffic(self) -> UsherTraffic:
        service = self._service
        return UsherTraffic(
            windfall.__version__,
            os.getpid(),
            self._since_ms,
            self._follower.table.version,
            len(service.clients),
            service.refused,
            service.traffic(),
        )


def listen(settings: UsherSettings, before: int | None) -> socket.socket:
    """Listen where it listened before, so that clients find it again; else at the settings' port or a free one."""
    ports = [settings.port] if settings.exact else list(dict.fromkeys([before or settings.port, 0]))
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    for port in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((settings.host, port))
            listening.listen(_BACKLOG)
            listening.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
        except OSError:
            listening.close()
            if port == ports[-1]:
                raise
        else:
            return listening
    raise AssertionError("there is a port to try")


def write_address(directory: Path, url: str) -> None:
    """Publish where the usher listens."""
    beside = directory / f".{ADDRESS_NAME}.{os.getpid()}"
    beside.write_text(url + "\n")
    beside.replace(directory / ADDRESS_NAME)


def read_address(directory: Path) -> str | None:
    """Where the usher listens, or last listened."""
    try:
        return (directory / ADDRESS_NAME).read_text().strip() or None
    except OSError:
        return None


def _address_before(directory: Path, settings: UsherSettings) -> int | None:
    url = read_address(directory)
    port = (url or "").rpartition(":")[2]
    return int(port) if url and not settings.exact and port.isdigit() and int(port) < 65536 else None


def main(arguments: Sequence[str]) -> int:
    """Be the usher of one directory."""
    import uvloop

    os.umask(0o077)
    logging.basicConfig(format="%(asctime)s windfall usher: %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ")
    logging.Formatter.converter = time.gmtime
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    settings = msgspec.json.decode(arguments[0], type=UsherSettings)

    async def serve() -> int:
        return await _Process(settings).run()

    try:
        return uvloop.run(serve())
    except KeyFileError as error:
        log.error("cannot serve: %s", error)  # noqa: TRY400 (no trace: it may quote secrets)
        return 1
    except OSError as error:
        log.error("cannot serve: %s", error)  # noqa: TRY400 (the text says it all)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
