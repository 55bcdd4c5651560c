"""The thread that starts processes: it takes the rights of each job's user, and has a working directory of its own.

os.posix_spawn cannot change user or directory; the kernel gives a new process those of the thread that
starts it. So this thread becomes the job's user for the start (see credentials.py) and enters the attempt's
directory through a descriptor that the main thread opened, so that the directory's ancestors need not be
open to that user. What makes a sandbox or keeps a container is started with the agent's own rights.
Between two batches the thread is the agent's user again: jobs may signal only what is theirs.

Decides how a process comes into being and in which words it is refused; must not know the journal, the
socket or what becomes of the process.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from windfall.agent.credentials import JobUser, ThreadRights, unshare_working_directory
from windfall.agent.errors import refusal
from windfall.agent.posix_spawn import SpawnRecipe
from windfall.agent.processes import boot_ticks
from windfall.agent.records import Spawned, Spawning
from windfall.agent.sandbox import find_program
from windfall.agent.speech import say

#: Dispositions that the agent's Python changed, or that its parent may have ignored.
_RESET_SIGNALS = [
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGXFSZ,
]
#: Results are handed over after this many starts at the latest, so that reports do not wait for a whole
#: large batch.
_HAND_OVER_AFTER = 16
#: As most systems have it, and for jobs that share directories with jobs of other tenants.
USUAL_UMASK, PRIVATE_UMASK = 0o022, 0o077


class Launch(NamedTuple):
    """One process to start; the descriptors are closed by the spawner whatever happens."""

    token: str
    argv: list[str]
    environment: dict[str, str]
    #: What is searched for argv[0]; the job's own PATH.
    path: str
    directory: str
    directory_fd: int
    log_fd: int
    stdin_fd: int | None
    isolation: str
    #: The user that it is started as; None starts it with the agent's own rights.
    user: JobUser | None = None
    #: What other users may not do with the files that it makes.
    umask: int = USUAL_UMASK


class Launched(NamedTuple):
    """What became of a `Launch`: a process, or the reason of a refusal."""

    token: str
    spawned: Spawned | None
    at: int
    reason: str | None
    #: The system's number for what was in the way; 0 where it has none.
    errno: int = 0


class WriteNow(Protocol):
    """Writes lines to the journal before it returns."""

    def __call__(self, *records: Spawning | Spawned) -> None: ...


class Spawner:
    """Starts processes in its own thread, in batches; calls `record` at once and `notify` when results wait.

    `record` runs in the thread right before and right after each start: without the first line no process exists, and
    hardly any moment is left in which one exists whose pid is written nowhere.
    """

    def __init__(
        self,
        record: WriteNow,
        notify: Callable[[], None],
        name: str,
    ) -> None:
        self._record = record
        self._notify = notify
        #: Whose start is announced already: in a batch with the line of the one before, so that each costs one write.
        self._announced = ""
        self._batches: SimpleQueue[list[Launch]] = SimpleQueue()
        self._results: deque[Launched] = deque()
        self._found: dict[tuple[str, str], str] = {}
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        null_fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        # Each process gets its log from the same descriptor, so that the recipes can be made once.
        self._output_slot, self._stdin_slot = os.dup(null_fd), os.dup(null_fd)
        self._recipe = SpawnRecipe(null_fd, self._output_slot, _RESET_SIGNALS)
        self._fed_recipe = SpawnRecipe(self._stdin_slot, self._output_slot, _RESET_SIGNALS)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def submit(self, batch: list[Launch]) -> None:
        """Queue processes to start."""
        self._batches.put(batch)

    def results(self) -> list[Launched]:
        """Take what is known by now."""
        taken = []
        while self._results:
            taken.append(self._results.popleft())
        return taken

    def _run(self) -> None:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            unshare_working_directory()
            rights, umask = ThreadRights(), -1
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for this one
            self._failure = error
            return
        finally:
            self._ready.set()
        while True:
            waiting = 0
            batch = self._batches.get()
            self._announced = ""  # The journal may have been written anew since.
            following = [*(launch.token for launch in batch[1:]), ""]
            for launch, after_it in zip(batch, following, strict=True):
                if launch.umask != umask:
                    umask = launch.umask
                    os.umask(umask)  # The thread's own since the unshare; the agent keeps its strict one.
                self._results.append(self._start(launch, after_it, rights))
                waiting += 1
                if waiting == _HAND_OVER_AFTER:
                    self._notify()
                    waiting = 0
            rights.rest()
            if waiting:
                self._notify()

    def _start(self, launch: Launch, after_it: str, rights: ThreadRights) -> Launched:
        try:
            rights.take(launch.user)
            return self._spawn(launch, after_it)
        except Exception as error:  # noqa: BLE001 - the edge of the loop: one bad start must not end all
            say(f"cannot start {launch.token}: {error!r}")
            number = error.errno if isinstance(error, OSError) else 0
            return _refused(launch, f"exec: {_quoted(launch.argv[0])}: {error}", number)
        finally:
            os.close(launch.log_fd)
            os.close(launch.directory_fd)
            if launch.stdin_fd is not None:
                os.close(launch.stdin_fd)

    def _spawn(self, launch: Launch, after_it: str) -> Launched:
        try:
            os.fchdir(launch.directory_fd)
        except OSError as error:
            return _refused(launch, f"chdir {_quoted(launch.directory)}: {_words(error)}", error.errno)
        recipe = self._recipe
        if launch.stdin_fd is not None:
            os.dup2(launch.stdin_fd, self._stdin_slot, inheritable=False)
            recipe = self._fed_recipe
        os.dup2(launch.log_fd, self._output_slot, inheritable=False)
        argv = launch.argv
        for last_try in (False, True):
            program = self._program(argv[0], launch.path)
            if program is None:
                return _refused(launch, missing_program(argv[0], launch.path))
            before = boot_ticks()
            if self._announced != launch.token:
                self._record(Spawning(launch.token, before))
            try:
                pid = recipe.spawn(program, argv, launch.environment)
            except OSError as error:
                # What was found before may have been moved meanwhile: look again, once.
                if self._found.pop((argv[0], launch.path), None) is None or last_try:
                    return _refused(launch, f"exec: {_quoted(argv[0])}: {_words(error)}", error.errno)
                continue
            at = time.time_ns() // 1_000_000
            spawned = Spawned(launch.token, pid, before, at, launch.isolation, boot_ticks() - before)
            self._announced = ""
            announced = [Spawning(after_it, before)] if after_it else []
            try:
                self._record(spawned, *announced)
                self._announced = after_it
            except OSError as error:  # It runs, whatever became of the line: the disk may be full.
                say(f"{launch.token}: process {pid} is not in the journal: {error}")
            return Launched(launch.token, spawned, spawned.at, None)
        raise AssertionError("unreachable")

    def _program(self, name: str, path: str) -> str | None:
        if "/" in name:
            return name
        key = (name, path)
        program = self._found.get(key)
        if program is None:
            program = find_program(name, path)
            # Only what does not depend on the working directory may be remembered.
            if program is not None and os.path.isabs(program):
                if len(self._found) > 1_000:
                    self._found.clear()
                self._found[key] = program
        return program


def missing_program(name: str, path: str) -> str:
    """Return why a program was not found: it is nowhere, or it is there and may not be run."""
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.path.isfile(candidate) and not os.access(candidate, os.X_OK):
            return f"exec: {_quoted(name)}: permission denied"
    return f"exec: {_quoted(name)}: executable file not found in $PATH"


def _refused(launch: Launch, problem: str, number: int | None = 0) -> Launched:
    return Launched(launch.token, None, time.time_ns() // 1_000_000, refusal(problem), number or 0)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _words(error: OSError) -> str:
    return errno_words(error.errno or 0)


def errno_words(number: int) -> str:
    """Return the system's words for an error, in the lower case that container engines use."""
    if number == errno.ENOEXEC:
        return "exec format error"
    return os.strerror(number).lower()
