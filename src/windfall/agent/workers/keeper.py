"""The keeper of one warm worker: runs the user's process, gives it one child at a time, and ends it.

    python -P -S -m windfall.agent.workers.keeper        with its agent's end of a socket as standard input

A program of its own with the agent's rights, so that it goes on when the agent is killed; the user's process below it
is the job user's. What it is told:
- by the agent, one packet each: `plan` (with descriptors: the plan as JSON, the working directory, perhaps a script for
  the standard input), then `task` (the task as a line, the child's socket, the child's log). The end of the socket
  means: end when no child is under way. `idle` is said when a child is done and the next may come.
- by a child's shell: `go` when it exists, so that a child whose attempt never came to life is never run; the end of its
  socket means that the attempt was killed, and the user's process with it. It is answered with the exit code.
- by the user's process: one line of JSON per child.
- by signals, where that process is a container: SIGTERM is for the container, SIGUSR1 kills it with its child.

Decides what becomes of a child when anybody dies. A child is given to the process once; a process has one child.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import shutil
import signal
import socket

from windfall.agent.workers.container_process import ContainerProcess
from windfall.agent.workers.user_process import CannotStart, UserProcess, take_orphans
from windfall.agent.workers.words import OUT_OF_MEMORY

_KILLED_CODE = 137


class Task:
    """One child, from its packet to its exit code."""

    def __init__(self, line: bytes, client: socket.socket, log_fd: int) -> None:
        self.line = line
        self.client = client
        self._log_fd = log_fd
        #: Whether its shell exists, and the process was told.
        self.begun = False
        #: Whether that process was there before, and may have been about to end.
        self.in_old_process = False

    def log(self, content: bytes) -> None:
        """Add to the child's log; a full disk must not stop the child."""
        with contextlib.suppress(OSError):
            while content:
                content = content[os.write(self._log_fd, content) :]

    def close(self, code: int | None) -> None:
        """Let go of the child; its shell exits with the code, if it was not killed this very moment."""
        if code is not None:
            with contextlib.suppress(OSError):
                self.client.sendall(f"{code}\n".encode())
        self.client.close()
        os.close(self._log_fd)


class Keeper:
    """The loop over the agent, the child and the process."""

    def __init__(self, control: socket.socket, plan_fds: list[int]) -> None:
        self._control = control
        self._agent = os.getppid()
        #: The agent is gone, or wants no more of this worker.
        self._orphaned = False
        #: The process was lost with its child.
        self._over = False
        plan_fd, self._directory_fd, *script = plan_fds
        self._script_fd = script[0] if script else None
        self._plan = json.loads(_content(plan_fd))
        self._task: Task | None = None
        self._process: UserProcess | ContainerProcess | None = None
        self._contained = self._plan["container"] is not None
        self._asked: set[int] = set()
        self._wake_fd, self._notify_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Serve until the agent wants no more, or the process was lost with a child."""
        if self._contained:
            signal.set_wakeup_fd(self._notify_fd, warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, lambda number, _: self._asked.add(number))
            # The first child waits until it runs, and is refused if it never does, as any container would be.
            try:
                self._process = self._start()
            except CannotStart:
                self._over = True
        while not self._over and not (self._orphaned and self._task is None):
            poll = select.poll()
            if not self._orphaned:
                poll.register(self._control, select.POLLIN)
            poll.register(self._wake_fd, select.POLLIN)
            if self._task is not None:
                poll.register(self._task.client, select.POLLIN)
            if self._process is not None:
                self._process.register(poll)
            self._serve(dict(poll.poll()))
        self._end_process()
        self._tidy()

    def _serve(self, ready: dict[int, int]) -> None:
        if self._wake_fd in ready:
            self._on_signals()
        process, task = self._process, self._task
        if process is not None:
            process.push()
            process.note_silence(ready)
            self._log(process.output())
            answer = process.answer()
            if answer is not None:
                self._log(process.output())  # What was printed before the answer is in the pipe by now.
                self._on_answer(answer)
            elif process.pidfd in ready:
                self._on_exit(process)
        if task is not None and task is self._task and task.client.fileno() in ready:
            self._on_client(task)
        if not self._orphaned and self._control.fileno() in ready:
            self._on_control()

    # --- the agent and the child -----------------------------------------------------------------------

    def _on_control(self) -> None:
        content, fds = _receive(self._control)
        if not content:
            self._orphaned = True
            return
        line_fd, client_fd, log_fd = fds
        self._task = Task(_content(line_fd), socket.socket(fileno=client_fd), log_fd)

    def _on_client(self, task: Task) -> None:
        try:
            alive = bool(task.client.recv(16))
        except OSError:
            alive = False
        if alive and not task.begun:
            task.begun = True
            self._begin(task)
        elif not alive and task.begun:
            self._lose_process(None)
        elif not alive:
            self._finish(None)

    def _begin(self, task: Task) -> None:
        if self._process is not None and self._process.ended:
            self._process.kill()  # It has left since the child before.
            self._process = None
        task.in_old_process = self._process is not None
        if self._process is None:
            try:
                self._process = self._start()
            except CannotStart as problem:
                task.log(f"windfall: the worker cannot be started: {problem}\n".encode())
                self._lose_process(127)
                return
        self._process.tell(task.line + b"\n")

    def _start(self) -> UserProcess | ContainerProcess:
        if self._contained:
            try:
                return ContainerProcess(self._plan, self._directory_fd)
            except OSError as error:
                raise CannotStart(str(error)) from None
        if self._script_fd is not None:
            os.lseek(self._script_fd, 0, os.SEEK_SET)
        return UserProcess(self._plan, self._directory_fd, self._script_fd)

    def _on_signals(self) -> None:
        """Do with the container what is asked; without a child nobody asks."""
        os.read(self._wake_fd, 4096)
        asked, self._asked = self._asked, set()
        if self._task is None:
            return
        if signal.SIGUSR1 in asked:
            self._lose_process(_KILLED_CODE)
        elif signal.SIGTERM in asked and self._process is not None:
            self._process.stop()

    def _finish(self, code: int | None) -> None:
        """The child is done and the worker may have another."""
        task, self._task = self._task, None
        assert task is not None
        if not self._orphaned:
            try:
                self._control.send(b"idle")
            except OSError:
                self._orphaned = True
        if self._orphaned:
            self._end_process()  # What the process holds must be free when its last child's attempt ends.
        task.close(code)

    # --- the process -----------------------------------------------------------------------------------

    def _log(self, content: bytes) -> None:
        """Write what was printed into the child's log; what is printed without a child is nobody's."""
        if self._task is not None:
            self._task.log(content)

    def _on_answer(self, line: bytes) -> None:
        if self._task is None or not self._task.begun:
            return
        try:
            answer = json.loads(line)
            code = int(answer.get("exit_code", 0)) & 0xFF
        except (ValueError, TypeError, AttributeError):
            self._log(
                b"windfall: the worker's answer is not a JSON object with an exit_code: " + line + b"\n"
            )
            self._lose_process(1)
            return
        if code != 0 and self._process is not None and self._process.out_of_memory():
            self._lose_process(code)
            return
        if answer.get("leave"):
            self._end_process()
        self._finish(code)

    def _on_exit(self, process: UserProcess | ContainerProcess) -> None:
        if self._task is None or not self._task.begun:
            process.kill()  # What it may have left.
            self._process = None
            return
        if self._task.in_old_process and not process.has_read:
            process.kill()  # It was leaving already; the child has not been begun.
            self._process = None
            self._begin(self._task)
            return
        code = process.exit_code()
        if process.failure:
            self._log(process.output() + f"windfall: {process.failure}\n".encode())
        elif code == 0:
            self._log(process.output() + b"windfall: the worker left without an answer for this child\n")
        self._lose_process(code or 1)

    def _lose_process(self, code: int | None) -> None:
        """The process is lost with its child, and this worker with it; all is gone before the child's end is told."""
        if self._process is not None:
            if self._process.out_of_memory():
                with contextlib.suppress(OSError):
                    self._control.send(OUT_OF_MEMORY)
            self._log(self._process.kill())
            self._process = None
        task, self._task = self._task, None
        assert task is not None
        task.close(code)
        self._over = True

    def _end_process(self) -> None:
        if self._process is None:
            return
        # Nobody waits for the idle worker of a dead agent: the next agent may give its GPU away in a moment.
        at_once = self._task is None and os.getppid() != self._agent
        self._log(self._process.kill() if at_once else self._process.leave())
        self._process = None

    def _tidy(self) -> None:
        """Say that all is over, then remove what only this worker used."""
        self._control.close()
        os.close(0)
        # An agent that still wants to ask them why a child died removes them itself.
        for path in self._plan["cgroups"] if self._orphaned else []:
            with contextlib.suppress(OSError):
                os.rmdir(path)
        for path in self._plan["directories"]:
            shutil.rmtree(path, ignore_errors=True)


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return a packet of the agent with its descriptors; an empty one is the end."""
    numbers = array.array("i")
    try:
        content, ancillary, _, _ = control.recvmsg(16, socket.CMSG_SPACE(4 * numbers.itemsize))
    except ConnectionError:
        return b"", []
    for _, _, attached in ancillary:
        numbers.frombytes(attached[: len(attached) - len(attached) % numbers.itemsize])
    for fd in numbers:
        os.set_inheritable(fd, False)  # noqa: FBT003 - it takes no keyword
    return content, list(numbers)


def _content(fd: int) -> bytes:
    """Return all that is in a nameless file, and close it."""
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return file.read()


def main() -> None:
    """Keep one worker."""
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    take_orphans()
    control = socket.socket(fileno=os.dup(0))
    word, fds = _receive(control)
    if word:  # Else the agent died before it said what to keep.
        Keeper(control, fds).run()


if __name__ == "__main__":
    main()
