"""`python -m windfall.agent.steward SETTINGS`: reads from its standard input, a socket, what the agent says of
attempts, and serves couriers and feeders at its door until that ends.

Decides which connection is whose. One steward at a time for an agent's directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Sequence

import msgspec

from windfall.agent.courier.porters import kill_porters
from windfall.agent.errors import AgentError
from windfall.agent.line_reader import LineReader
from windfall.agent.secrets import git_credential
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say
from windfall.agent.steward.feeders import start_feeder
from windfall.agent.steward.link_local import LinkLocal, serve_link_local
from windfall.agent.steward.messages import Admit, orders
from windfall.agent.steward.packets import SOCKET, make_door, new_socket
from windfall.agent.steward.service import Admitted, Porters, Service

LOCK_NAME = "steward.lock"
_CHUNK_BYTES = 1 << 20
_QUEUE = 128
#: A courier asks from a dozen threads at once.
_MOST_CONNECTIONS_OF_ONE = 64
_MOST_CONNECTIONS = 1024
_CREDENTIALS = struct.Struct("3i")


class Steward:
    """The attempts that the agent has announced, and the connections for them."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._admitted: dict[str, Admitted] = {}
        self._lock = threading.Lock()
        self._connections = 0
        memory = os.memfd_create("device")
        self._devices = frozenset({os.fstat(memory).st_dev, os.stat(settings.attempts_directory).st_dev})
        os.close(memory)
        self._porters = Porters(
            lambda admit, order: start_feeder(settings, admit, order),
            lambda token: kill_porters(token, settings.agent_id),
            lambda kept: git_credential(settings.secrets_directory, kept),
        )
        self._link_local: LinkLocal | None = None
        if settings.link_local_metadata:
            self._link_local = serve_link_local(settings.agent_id, self._port_of)

    def listen(self) -> None:
        """Serve at the door, in threads, from now on."""
        # By a relative name, because that of a socket must be short.
        os.chdir(make_door(self._settings.directory))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)
        listener = new_socket()
        listener.bind(SOCKET)
        os.chmod(SOCKET, 0o666)  # noqa: S103 - nobody comes here who was not led here
        listener.listen(_QUEUE)
        threading.Thread(target=self._accept, args=(listener,), name="door", daemon=True).start()

    def obey(self, line: socket.socket) -> None:
        """Learn from the agent which attempts there are, until it is gone."""
        reader = LineReader()
        while chunk := line.recv(_CHUNK_BYTES):
            lines = reader.feed(chunk)
            for order in orders.decode_lines(lines) if lines else ():
                if isinstance(order, Admit):
                    self._admit(order)
                else:
                    self._dismiss(order.token)
        if self._link_local is not None:
            self._link_local.close()

    def _admit(self, admit: Admit) -> None:
        with self._lock:
            known = self._admitted.get(admit.token)
            if known is not None and known.is_same(admit):
                known.admit = admit
                return
            self._admitted[admit.token] = Admitted(admit, self._settings.objects_file)
        if known is not None:
            known.stores.cut()

    def _dismiss(self, token: str) -> None:
        with self._lock:
            known = self._admitted.pop(token, None)
        if known is not None:
            known.stores.cut()

    def _port_of(self, token: str) -> int | None:
        known = self._admitted.get(token)
        return known.admit.port or None if known is not None else None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError as error:
                say(f"the steward cannot take a connection: {error}")
                continue
            with self._lock:
                full = self._connections >= _MOST_CONNECTIONS
                self._connections += not full
            if full:
                line.close()
                continue
            threading.Thread(target=self._serve, args=(line,), name="service", daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        found: list[Admitted] = []

        def find(token: str) -> Admitted | None:
            known = self._admitted.get(token)
            if known is None:
                return None
            with self._lock:
                if known.connections >= _MOST_CONNECTIONS_OF_ONE:
                    raise ConnectionAbortedError(f"{token} has too many connections")
                known.connections += 1
            found.append(known)
            return known

        try:
            with line:
                uid = _peer_uid(line)
                try:
                    Service(line, find, self._devices, self._porters).serve(uid)
                except ConnectionError:
                    pass  # It has gone, or has nothing to do here.
                except (AgentError, msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
                    say(f"the steward has closed a connection of user {uid}: {error}")
        except Exception as error:  # noqa: BLE001 - the edge of the thread: one connection must not end all
            say(f"the steward has closed a connection: {error!r}")
        finally:
            with self._lock:
                self._connections -= 1
                for admitted in found:
                    admitted.connections -= 1


def _peer_uid(line: socket.socket) -> int:
    content = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(content)[1])


def main(arguments: Sequence[str]) -> None:
    """Be the steward of the agent whose settings are given as JSON."""
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Feeders are children that nobody waits for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    settings = msgspec.json.decode(arguments[0], type=AgentSettings)
    path = os.path.join(settings.directory, LOCK_NAME)
    fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    line = socket.socket(fileno=os.dup(0))
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null_fd, 0)
    steward = Steward(settings)
    steward.listen()
    with contextlib.suppress(ConnectionError):
        steward.obey(line)
    # Not a usual exit: it would wait for threads that a hanging store keeps.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
