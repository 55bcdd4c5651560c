"""Carries bytes between its own standard input and output and the socket of the agent that serves a directory.

    python -I -S relay.py AGENT_DIRECTORY

The far end of `ssh HOST ...`: nothing on the machine listens for the daemon but sshd. A script of the standard library
alone, like the warden: it starts quickly and survives an installation that is being replaced. Must not know messages.
"""

from __future__ import annotations

import os
import select
import socket
import sys

#: The line before the first byte of the agent; what a login shell has printed comes before it.
GREETING = b"windfall-relay 1\n"
_SOCKET_NAME = "agent.sock"
_NO_AGENT = 69
_CHUNK_BYTES = 1 << 18


def relay(directory: str, stdin: int = 0, stdout: int = 1) -> int:
    """Carry until either side ends; returns the exit status."""
    agent = socket.socket(socket.AF_UNIX)
    try:
        # By a short name: the kernel takes 107 bytes, and a home directory may be deep.
        os.chdir(directory)
        agent.connect(_SOCKET_NAME)
    except OSError as error:
        sys.stderr.write(f"no agent answers at {directory}/{_SOCKET_NAME}: {error.strerror or error}\n")
        return _NO_AGENT
    try:
        _write(stdout, GREETING)
        return _carry(agent, stdin, stdout)
    except OSError:
        return 0
    finally:
        agent.close()


def _carry(agent: socket.socket, stdin: int, stdout: int) -> int:
    poll = select.poll()
    for fd in (stdin, agent.fileno()):
        poll.register(fd, select.POLLIN)
    # A daemon that is gone and sends nothing is noticed by the end of its output.
    poll.register(stdout, 0)
    while True:
        for fd, happened in poll.poll():
            if fd == stdout and fd != stdin:
                if happened & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    return 0
            elif fd == stdin:
                if not (chunk := os.read(stdin, _CHUNK_BYTES)):
                    return 0
                agent.sendall(chunk)
            else:
                if not (chunk := agent.recv(_CHUNK_BYTES)):
                    return 0
                _write(stdout, chunk)


def _write(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]


if __name__ == "__main__":
    sys.exit(relay(sys.argv[1]))
