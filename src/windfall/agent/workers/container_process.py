"""A worker's container, as its keeper has it: the process that keeps any container, and three pipes into it.

The process (agent/container/keeper.py) fetches the image, makes, starts, follows and removes the container, and ends as
that ended; here it is told to stop or to kill it. The pipes are files in a directory that the container sees. Decides
how such a worker begins and how nothing of it is left; must not know the agent or children.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from typing import Any

from windfall.agent.container.engine import Engine
from windfall.agent.container.errors import EngineError
from windfall.agent.container.keeper import OUT_OF_MEMORY, start_ticks
from windfall.agent.container.notebook import ORDERS, PIPES, STATE
from windfall.agent.container.worker_command import ANSWERS, OUTPUT, TASKS
from windfall.agent.workers.pipes import WorkerPipes
from windfall.agent.workers.user_process import LEAVE_WITHIN_S, CannotStart, become

#: How long an engine may take to kill a container, on a busy machine.
_KILL_WITHIN_S = 40.0
_KILL_AGAIN_S = 0.5


class ContainerProcess(WorkerPipes):
    """A container that runs or is about to, and what keeps it."""

    def __init__(self, plan: dict[str, Any], directory_fd: int) -> None:
        self._directory: str = plan["container"]
        with open(f"{self._directory}/{ORDERS}", "rb") as file:
            orders = json.load(file)
        self._engine = Engine(orders["socket"], orders["api"])
        self._name: str = orders["name"]
        self._forget_the_one_before()
        pipes = f"{self._directory}/{PIPES}"
        fds = _new_pipes(pipes)
        nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(f"{pipes}/{OUTPUT}", os.O_WRONLY)
        fault_read, fault_write = os.pipe()
        keeper = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            # What the container says past its pipes, such as that its program is missing, is output too.
            wanted = {0: nothing, 1: output, 2: output}
            # Killing this keeper ends the container all the same.
            become(plan, wanted, directory_fd, fault_write, (keeper, signal.SIGUSR1))
        for fd in (nothing, output, fault_write):
            os.close(fd)
        super().__init__(*fds, os.pidfd_open(self._pid))
        fault = os.read(fault_read, 1024)
        os.close(fault_read)
        self._collected = False
        #: Before its first child it is not listened to: what it says until then is the first child's.
        self._heard = False
        if fault:
            self.kill()
            raise CannotStart(fault.decode(errors="replace"))

    def tell(self, line: bytes) -> None:
        """Give it a line."""
        self._heard = True
        super().tell(line)

    def output(self) -> bytes:
        """Take what it has printed."""
        return super().output() if self._heard else b""

    @property
    def unwatched(self) -> set[int]:
        """What need not be waited for now."""
        return super().unwatched if self._heard else {*super().unwatched, self.output_fd}

    def stop(self) -> None:
        """Send the image's stop signal to the container's first process."""
        if not self._collected:
            os.kill(self._pid, signal.SIGTERM)

    def exit_code(self) -> int:
        """Collect it after its end: the container's code."""
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._collected = True
        return 128 - code if code < 0 else code

    def out_of_memory(self) -> bool:
        """Tell whether something in the container was killed for memory."""
        if self._state().get("reason") == OUT_OF_MEMORY:
            return True
        try:
            found = self._engine.inspect(self._name)
        except EngineError:
            return False
        return bool(found is not None and found["State"].get("OOMKilled"))

    @property
    def failure(self) -> str:
        """Why there was no container, or what became of it; empty where it ended by itself."""
        state = self._state()
        return str(state.get("failure") or state.get("reason") or "")

    def leave(self) -> bytes:
        """Let it leave by itself, as the end of its input asks; then nothing of it is left. Returns its last words."""
        self.end_input()
        return self.output_until_end(LEAVE_WITHIN_S) + self.kill()

    def kill(self) -> bytes:
        """Kill the container, wait until it is gone and return the last words."""
        said = b""
        give_up_at = time.monotonic() + _KILL_WITHIN_S
        while not self.ended and time.monotonic() < give_up_at:
            os.kill(self._pid, signal.SIGUSR1)
            said += self.output_until_end(_KILL_AGAIN_S)
        if not self._collected:
            os.kill(self._pid, signal.SIGKILL)
            self.exit_code()
        if self._state().get("ended_at") is None:
            self._remove()
        said += super().output()
        self.close()
        return said

    def _remove(self) -> None:
        """End a container that was left alone: first as a process like others, for its engine may not answer."""
        state = self._state()
        if state.get("pid") and start_ticks(state["pid"]) == state.get("pid_ticks"):
            with contextlib.suppress(OSError):
                os.kill(state["pid"], signal.SIGKILL)
        with contextlib.suppress(EngineError):
            self._engine.remove(self._name)

    def _forget_the_one_before(self) -> None:
        """A worker that left has had a container of the same name, whose end is not this one's."""
        path = f"{self._directory}/{STATE}"
        if not os.path.exists(path):
            return
        try:
            self._engine.remove(self._name)
        except EngineError as error:
            raise CannotStart(str(error)) from None
        os.unlink(path)

    def _state(self) -> dict[str, Any]:
        try:
            with open(f"{self._directory}/{STATE}", "rb") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _new_pipes(directory: str) -> tuple[int, int, int]:
    """Make the pipes anew and return this side's ends; open both ways, they neither wait for anybody nor end."""
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    os.chmod(directory, 0o755)  # noqa: S103 - the one above it lets nobody pass; the container sees this one
    fds = []
    for name in (TASKS, OUTPUT, ANSWERS):
        path = f"{directory}/{name}"
        os.mkfifo(path)
        os.chmod(path, 0o666)  # noqa: S103 - the container's user may be anybody
        fds.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    return fds[0], fds[1], fds[2]
