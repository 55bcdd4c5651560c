"""Several attempts on one GPU, each with its part, by NVIDIA's MPS.

Every shared GPU has a control daemon of its own, which this agent starts with the first attempt and lets go when no
attempt has needed it for a while: a program that fails then disturbs those on its own GPU alone. It sees one device, so
that the memory limit of its clients is always that of device 0. A client that finds no daemon would silently have the
whole GPU: an attempt is started only when its daemon listens. Must not know how shares are given away.

https://docs.nvidia.com/deploy/mps/
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence

from windfall.agent.devices.nvidia_smi import find_driver_program
from windfall.agent.errors import AgentError
from windfall.agent.gpus import GpuDevice

PROGRAM = "nvidia-cuda-mps-control"
SHARE_VARIABLE = "WINDFALL_GPU_SHARE"
_READY_S = 5.0
_IDLE_S = 60.0
#: The agent's own files are for nobody else, but jobs run as another user must be able to connect.
_WITH_OPEN_SOCKETS = 'umask 000; exec "$@"'
_PID_FILE = "nvidia-cuda-mps-control.pid"


class CannotShare(AgentError):
    """A part of a GPU is not available here; the text says why."""


class DeviceShares:
    """The control daemons of this agent."""

    def __init__(self, gpus: Sequence[GpuDevice], agent_id: str, program: str | None = None) -> None:
        self._gpus = gpus
        self._root = os.path.join(_runtime_directory(), f"windfall-mps-{agent_id}")
        self._program = program
        #: Called for every process that is started here, so that it is not taken for a job's leftover.
        self.spare: Callable[[int], None] = lambda _: None
        #: The attempts that use each daemon, by device, and since when nobody does.
        self._users: dict[str, set[str]] = {}
        self._idle_since: dict[str, float] = {}

    def variables(self, token: str, gpu_id: str, share: float, *, own_memory: bool) -> dict[str, str]:
        """What an attempt needs to get its part of a device; starts the daemon if it must. Raises CannotShare."""
        gpu = next((one for one in self._gpus if one.id == gpu_id), None)
        if gpu is None or gpu.sharing is None:
            raise CannotShare(f"GPU {gpu_id} cannot be shared here: `windfall gpus` says why")
        # At least one percent: 0 would be no limit at all.
        percentage = max(1, round(share * 100))
        variables = {SHARE_VARIABLE: f"{share:g}", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
        if gpu.memory_mib is not None:
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={int(gpu.memory_mib * share)}M"
        if gpu.sharing != "mps":
            return variables
        if own_memory:
            raise CannotShare(
                "a part of a GPU needs the host's shared memory: it cannot be combined with sharedMemorySize, with"
                " containers, nor with jobs that are kept apart in a sandbox"
            )
        pipes = self._directory(gpu_id)
        self._start(gpu_id, pipes)
        self._users.setdefault(gpu_id, set()).add(token)
        self._idle_since.pop(gpu_id, None)
        return {**variables, "CUDA_MPS_PIPE_DIRECTORY": pipes}

    def rest(self, is_live: Callable[[str], bool], *, at_once: bool = False) -> None:
        """Let daemons go that nobody has used for a while, or does not use now if this is the end."""
        now = time.monotonic()
        for gpu_id, tokens in list(self._users.items()):
            tokens.intersection_update({token for token in tokens if is_live(token)})
            if tokens:
                continue
            since = self._idle_since.setdefault(gpu_id, now)
            if at_once or now - since >= _IDLE_S:
                del self._users[gpu_id], self._idle_since[gpu_id]
                self._quit(self._directory(gpu_id))

    @property
    def next_due(self) -> float | None:
        """When a daemon has been idle for long enough, on the monotonic clock."""
        return min(self._idle_since.values()) + _IDLE_S if self._idle_since else None

    def _directory(self, gpu_id: str) -> str:
        # Short: the path of a socket may have about a hundred characters.
        return os.path.join(self._root, hashlib.sha256(gpu_id.encode()).hexdigest()[:8])

    def _start(self, gpu_id: str, pipes: str) -> None:
        if is_running(pipes):
            return
        program = self._program or find_driver_program(PROGRAM)
        if program is None:
            raise CannotShare(f"{PROGRAM} is not installed: it comes with NVIDIA's driver")
        logs = os.path.join(pipes, "log")
        try:
            for directory in (self._root, pipes, logs):
                _make_own(directory)
            environment = _environment(pipes) | {"CUDA_VISIBLE_DEVICES": gpu_id}
            # In the foreground: a daemon that went its own way would look like what a job left behind.
            pid = _spawn(
                ["/bin/sh", "-c", _WITH_OPEN_SOCKETS, "sh", program, "-f"],
                environment,
                os.path.join(logs, "windfall.log"),
            )
        except OSError as error:
            raise CannotShare(f"{PROGRAM} cannot be started: {error}") from None
        self.spare(pid)
        deadline = time.monotonic() + _READY_S
        while not is_running(pipes):
            if time.monotonic() > deadline:
                raise CannotShare(f"{PROGRAM} does not begin to serve; its log is in {logs}")
            time.sleep(0.005)

    def _quit(self, pipes: str) -> None:
        """Ask a daemon to end when its last client has."""
        program = self._program or find_driver_program(PROGRAM)
        if program is None:
            return
        with contextlib.suppress(OSError):
            fd = os.memfd_create("mps-quit")
            os.write(fd, b"quit\n")
            os.lseek(fd, 0, os.SEEK_SET)
            try:
                self.spare(_spawn([program], _environment(pipes), os.devnull, stdin=fd))
            finally:
                os.close(fd)


def is_running(pipes: str) -> bool:
    """Whether a control daemon serves this directory."""
    try:
        with open(os.path.join(pipes, _PID_FILE), encoding="ascii") as file:
            pid = int(file.read().strip())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return PROGRAM.encode() in file.read() and os.path.exists(os.path.join(pipes, "control"))
    except (OSError, ValueError):
        return False


def _runtime_directory() -> str:
    """A place that jobs can reach whatever they see as /tmp."""
    if os.geteuid() == 0 and os.path.isdir("/run"):
        return "/run"
    return os.environ.get("XDG_RUNTIME_DIR") or "/tmp"


def _make_own(directory: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
    if os.lstat(directory).st_uid != os.geteuid() or os.path.islink(directory):
        raise PermissionError(f"{directory} belongs to another user")
    # Jobs run as another user, and must reach the sockets.
    os.chmod(directory, 0o755)  # noqa: S103 - it holds no secret


def _environment(pipes: str) -> dict[str, str]:
    return {
        "PATH": "/usr/local/nvidia/bin:/usr/bin:/bin",
        "CUDA_MPS_PIPE_DIRECTORY": pipes,
        "CUDA_MPS_LOG_DIRECTORY": os.path.join(pipes, "log"),
    }


def _spawn(argv: list[str], environment: dict[str, str], output: str, stdin: int | None = None) -> int:
    inherited = os.environ.get("LD_LIBRARY_PATH")
    if inherited is not None:
        environment = {**environment, "LD_LIBRARY_PATH": inherited}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, output, flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        if stdin is None
        else (os.POSIX_SPAWN_DUP2, stdin, 0),
    ]
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True)
