"""A keeper's ends of the three pipes to the process of a worker: tasks go in, output and answers come out.

Decides how lines are cut and what of the output belongs before an answer. Must not know what kind of process is at the
other ends, nor children.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import termios
import time

_CHUNK_BYTES = 1 << 16
#: More than a pipe holds, so that what was printed before an answer is read before the answer counts.
_OUTPUT_BYTES = 1 << 20


class WorkerPipes:
    """The pipes of a process that runs, and a descriptor that can be read from when it has ended."""

    def __init__(self, input_fd: int, output_fd: int, answers_fd: int, pidfd: int) -> None:
        self._input_fd = input_fd
        self.output_fd = output_fd
        self.answers_fd = answers_fd
        self.pidfd = pidfd
        #: What nobody writes to any more; waiting for it would never wait.
        self.silent: set[int] = set()
        self._told_bytes = 0
        self._unsent = b""
        self._answered = b""
        for fd in (input_fd, output_fd, answers_fd):
            os.set_blocking(fd, False)

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def unwatched(self) -> set[int]:
        """What need not be waited for now."""
        return self.silent

    def register(self, poll: select.poll) -> None:
        """Have a poll wait for whatever it does next."""
        for fd in {self.output_fd, self.answers_fd, self.pidfd} - self.unwatched:
            poll.register(fd, select.POLLIN)
        if self._unsent:
            poll.register(self._input_fd, select.POLLOUT)

    def tell(self, line: bytes) -> None:
        """Give it a line."""
        self._told_bytes = len(line)
        self._unsent += line
        self.push()

    @property
    def has_read(self) -> bool:
        """Whether anything of the last line was read."""
        size = array.array("i", [0])
        fcntl.ioctl(self._input_fd, termios.FIONREAD, size)
        return size[0] + len(self._unsent) < self._told_bytes

    def push(self) -> None:
        """Write what its input takes now."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._input_fd, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # It reads no more, and will end or be killed.

    def output(self) -> bytes:
        """Take what it has printed."""
        return _read_all(self.output_fd, _OUTPUT_BYTES)

    def answer(self) -> bytes | None:
        """Take a complete line of descriptor 3, if there is one."""
        self._answered += _read_all(self.answers_fd, _CHUNK_BYTES)
        line, ended, rest = self._answered.partition(b"\n")
        if not ended:
            return None
        self._answered = rest
        return line

    def note_silence(self, ready: dict[int, int]) -> None:
        """Remember which pipes nobody writes to any more."""
        gone = select.POLLHUP | select.POLLERR
        self.silent |= {fd for fd in (self.output_fd, self.answers_fd) if ready.get(fd, 0) & gone}

    def end_input(self) -> None:
        """Tell it that no more children come."""
        if self._input_fd >= 0:
            os.close(self._input_fd)
            self._input_fd = -1

    def close(self) -> None:
        """Let go of all of it."""
        self.end_input()
        for fd in (self.pidfd, self.output_fd, self.answers_fd):
            os.close(fd)

    def output_until_end(self, within_s: float) -> bytes:
        """Take what it prints until it has ended or the time is over: with a full pipe it would wait for ever."""
        said = b""
        poll = select.poll()
        for fd in {self.output_fd, self.pidfd} - self.silent:
            poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            ready = dict(poll.poll(left_s * 1000))
            if self.pidfd in ready:
                break
            said += _read_all(self.output_fd, _OUTPUT_BYTES)
            if self.output_fd in ready and ready[self.output_fd] & (select.POLLHUP | select.POLLERR):
                self.silent.add(self.output_fd)
                poll.unregister(self.output_fd)
        return said


def _read_all(fd: int, most_bytes: int) -> bytes:
    """Read what is there now, and not much more than this many bytes."""
    content = b""
    while len(content) < most_bytes:
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except OSError:
            break
        if not chunk:
            break
        content += chunk
    return content
