"""EC2's own metadata address on a machine outside EC2: given to the loopback interface, served to attempts.

For programs that know 169.254.169.254 and no variable. All attempts of the machine share the address, so whose metadata
are asked for is found by the peer's socket: its process, and the attempt that the process belongs to. What it says is
passed on, unread, to the port at which the attempt's own courier answers. Decides when this must be refused: without
root, on EC2, and where somebody else has or answers at that address.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator

from windfall.agent.courier.errors import CourierError
from windfall.agent.courier.metadata import LOOPBACK
from windfall.agent.processes import attempt_token, read_stat
from windfall.agent.speech import say
from windfall.agent.spot_notices import is_ec2_instance

ADDRESS = "169.254.169.254"
_PORT = 80
#: What tells our address from anybody else's.
_LABEL = "lo:windfall"
_LOOPBACK_INDEX = 1
_NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS, _ERROR, _DONE = 20, 21, 22, 2, 3
_REQUEST, _ACKNOWLEDGE, _CREATE, _DUMP = 0x1, 0x4, 0x400, 0x300
_IFA_ADDRESS, _IFA_LOCAL, _IFA_LABEL = 1, 2, 3
_HOST_SCOPE = 254
_MESSAGE = struct.Struct("=IHHII")
_IFADDR = struct.Struct("=BBBBI")
_ANSWERS_WITHIN_S = 0.3
_IDLE_S = 30.0
_MOST_HEADER_BYTES = 1 << 16
_FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class CannotServe(CourierError):
    """The address is not available here; the text says why."""


#: Finds the port of an attempt's metadata by its token; None when there is none.
FindPort = Callable[[str], int | None]


class LinkLocal:
    """The address while it is ours."""

    def __init__(self, agent_id: str, find: FindPort) -> None:
        left_by_us = _check_machine()
        _change_address(_NEW_ADDRESS, _CREATE)
        try:
            self._server = _Server(agent_id, find)
        except OSError as error:
            if not left_by_us:
                self.close()
            raise CannotServe(f"port {_PORT} of {ADDRESS} cannot be served: {error.strerror}") from None
        threading.Thread(target=self._server.serve_forever, name="link-local", daemon=True).start()

    def close(self) -> None:
        """Give the address back."""
        with contextlib.suppress(OSError):
            _change_address(_DELETE_ADDRESS, 0)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, agent_id: str, find: FindPort) -> None:
        self._agent_id = agent_id
        self._find = find
        super().__init__((ADDRESS, _PORT), _Handler)

    def port_for(self, peer: tuple[str, int]) -> int | None:
        """Return where the metadata of the attempt are served whose process the peer is."""
        inode = _socket_inode(peer)
        for pid in _holders(inode) if inode is not None else ():
            token = _attempt_of(pid, self._agent_id)
            if token is not None:
                return self._find(token)
        return None

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the peer has gone, or has not spoken for long."""


class _Handler(socketserver.BaseRequestHandler):
    request: socket.socket

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        self.request.settimeout(_IDLE_S)
        port = server.port_for((self.client_address[0], int(self.client_address[1])))
        if port is None:
            self._forbid()
            return
        with socket.create_connection((LOOPBACK, port), _ANSWERS_WITHIN_S) as courier:
            courier.settimeout(_IDLE_S)
            back = threading.Thread(target=_pass_on, args=(courier, self.request), daemon=True)
            back.start()
            _pass_on(self.request, courier)
            back.join()

    def _forbid(self) -> None:
        """Refuse once the peer has asked: what was not read would take the answer with it."""
        asked = b""
        while b"\r\n\r\n" not in asked and len(asked) < _MOST_HEADER_BYTES:
            more = self.request.recv(4096)
            if not more:
                break
            asked += more
        self.request.sendall(_FORBIDDEN)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(1 << 16):
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def serve_link_local(agent_id: str, find: FindPort) -> LinkLocal | None:
    """Serve the address, or say in the agent's log why that is not possible."""
    try:
        return LinkLocal(agent_id, find)
    except (CannotServe, OSError) as error:
        say(f"instance metadata are not served at {ADDRESS}: {error}")
        return None


def _check_machine() -> bool:
    """Refuse where it must not be done; tell whether a steward before this one has left the address."""
    if os.geteuid() != 0:
        raise CannotServe("only root can give the loopback interface an address")
    if is_ec2_instance():
        raise CannotServe("this machine is an EC2 instance and has metadata of its own")
    labels = list(_labels())
    if any(label != _LABEL for label in labels):
        raise CannotServe("an interface of this machine has that address already")
    if not labels and _somebody_answers():
        raise CannotServe("the machine's own metadata service answers there")
    return bool(labels)


def _somebody_answers() -> bool:
    try:
        socket.create_connection((ADDRESS, _PORT), _ANSWERS_WITHIN_S).close()
    except OSError:
        return False
    return True


# --- the address ------------------------------------------------------------------------------------


def _change_address(kind: int, flags: int) -> None:
    address = socket.inet_aton(ADDRESS)
    body = _IFADDR.pack(socket.AF_INET, 32, 0, _HOST_SCOPE, _LOOPBACK_INDEX)
    body += _attribute(_IFA_LOCAL, address) + _attribute(_IFA_ADDRESS, address)
    body += _attribute(_IFA_LABEL, _LABEL.encode() + b"\0")
    for answer, content in _ask(kind, _REQUEST | _ACKNOWLEDGE | flags, body):
        if answer == _ERROR:
            number = -struct.unpack_from("=i", content)[0]
            if number and number not in (17, 99):  # It is there already, or not any more.
                raise OSError(number, os.strerror(number))
            return


def _labels() -> Iterator[str]:
    """Yield the label of every interface that has the address."""
    wanted = socket.inet_aton(ADDRESS)
    for answer, content in _ask(_GET_ADDRESS, _REQUEST | _DUMP, _IFADDR.pack(socket.AF_INET, 0, 0, 0, 0)):
        if answer == _NEW_ADDRESS:
            attributes = dict(_attributes(content[_IFADDR.size :]))
            if attributes.get(_IFA_LOCAL, attributes.get(_IFA_ADDRESS)) == wanted:
                yield attributes.get(_IFA_LABEL, b"").rstrip(b"\0").decode(errors="replace")


def _ask(kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as line:
        line.settimeout(2.0)
        line.bind((0, 0))
        line.send(_MESSAGE.pack(_MESSAGE.size + len(body), kind, flags, 1, 0) + body)
        while True:
            content = line.recv(1 << 16)
            while len(content) >= _MESSAGE.size:
                length, answer, *_ = _MESSAGE.unpack_from(content)
                if answer == _DONE:
                    return
                yield answer, content[_MESSAGE.size : length]
                if answer == _ERROR:
                    return
                content = content[(length + 3) & ~3 :]


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    while len(content) >= 4:
        length, kind = struct.unpack_from("=HH", content)
        if length < 4:
            return
        yield kind, content[4:length]
        content = content[(length + 3) & ~3 :]


# --- whose socket it is -----------------------------------------------------------------------------


def _socket_inode(peer: tuple[str, int]) -> str | None:
    host, port = peer
    ours = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if len(fields) > 9 and fields[1] == ours and fields[9] != "0":
                return fields[9]
    return None


def _holders(inode: str) -> Iterator[int]:
    wanted = f"socket:[{inode}]"
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            descriptors = os.listdir(f"/proc/{name}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/fd/{descriptor}") == wanted:
                    yield int(name)
                    break


def _attempt_of(pid: int, agent_id: str) -> str | None:
    """Return the attempt of a process, or of the nearest of its ancestors that still carries the mark."""
    while pid > 1:
        token = attempt_token(pid, agent_id)
        if token is not None:
            return token
        stat = read_stat(pid)
        if stat is None:
            return None
        pid = stat.ppid
    return None
