"""From a `Start` message to a process that can be started: names checked, directories made, log opened,
environment completed.

Decides what an attempt sees; must not know the journal or what becomes of the process. Everything is done
with the agent's own rights, so no path that a job could have changed is followed.
"""

from __future__ import annotations

import os
import re

from windfall.agent.attempt import Attempt
from windfall.agent.directories import PrivateDirectories
from windfall.agent.errors import AgentError
from windfall.agent.journal import Intended
from windfall.agent.machine import Machine
from windfall.agent.messages import Start
from windfall.agent.processes import AGENT_VARIABLE, TOKEN_VARIABLE
from windfall.agent.sandbox import DEFAULT_PATH, SandboxPlan, find_program, job_script, sandbox_command
from windfall.agent.spawner import Launch, errno_words, missing_program

#: Tokens look like `<job id>#<attempt>`. Never a leading dot: `..` would be the parent, and Forget removes
#: what it names.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:#-]{0,199}\Z", re.ASCII)


class CannotStart(AgentError):
    """The attempt cannot be started; the text is the problem without AWS's prefix."""


def intend(start: Start, machine: Machine, at: int) -> Intended:
    """Return what will be done, before anything is done."""
    sandboxed = machine.wants_sandbox(start.needs_sandbox, start.shared_memory_mib)
    base = os.path.join(machine.settings.attempts_directory, start.task_id)
    directories = [] if start.directory is not None else [base]
    if sandboxed:
        directories.append(base + ".tmp")
    if not (_NAME.match(start.token) and _NAME.match(start.task_id)):
        directories = []
    return Intended(
        token=start.token,
        task_id=start.task_id,
        log_path=start.log_path,
        private_directories=directories,
        memory_mib=start.memory_mib,
        vcpus=start.vcpus,
        sandboxed=sandboxed,
        at=at,
    )


def prepare(attempt: Attempt, start: Start, machine: Machine, directories: PrivateDirectories) -> Launch:
    """Make and open all that the process needs; raises CannotStart in a container engine's words."""
    _check(start)
    for path in attempt.intended.private_directories:
        try:
            directories.make(path)
        except OSError as error:
            raise CannotStart(f'mkdir "{path}": {errno_words(error.errno or 0)}') from None
    directory = start.directory or attempt.intended.private_directories[0]
    environment = job_environment(start, directory, machine.settings.agent_id)
    path = environment["PATH"]
    directory_fd = _open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, "chdir")
    stdin_fd = None
    try:
        argv, isolation = start.argv, "process"
        if attempt.intended.sandboxed:
            argv, isolation = _sandboxed(attempt, start, machine, directory, path)
            stdin_fd = _memory_file(job_script(start.argv, environment))
            environment = {name: environment[name] for name in (TOKEN_VARIABLE, AGENT_VARIABLE)}
            environment["PATH"] = DEFAULT_PATH
        log_fd = _open(start.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, "open log")
    except BaseException:
        os.close(directory_fd)
        if stdin_fd is not None:
            os.close(stdin_fd)
        raise
    return Launch(start.token, argv, environment, path, directory, directory_fd, log_fd, stdin_fd, isolation)


def job_environment(start: Start, directory: str, agent_id: str) -> dict[str, str]:
    """Return the complete environment of a job; which GPUs it sees is not its own to say."""
    environment = {"PATH": DEFAULT_PATH, "HOME": directory, **start.environment}
    devices = ",".join(start.gpu_ids)
    environment["NVIDIA_VISIBLE_DEVICES"] = devices or "void"
    environment["CUDA_VISIBLE_DEVICES"] = devices
    environment[TOKEN_VARIABLE] = start.token
    environment[AGENT_VARIABLE] = agent_id
    return environment


def _check(start: Start) -> None:
    for kind, name in (("token", start.token), ("task id", start.task_id)):
        if not _NAME.match(name):
            raise CannotStart(f'the {kind} "{name}" cannot name a file')
    if not start.argv or not start.argv[0]:
        raise CannotStart("no command specified")
    for name, value in start.environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise CannotStart(f'"{name}" cannot be an environment variable')
    if any("\0" in argument for argument in start.argv):
        raise CannotStart("an argument contains a zero byte")
    if start.directory is not None and not os.path.isabs(start.directory):
        raise CannotStart(f'chdir "{start.directory}": not an absolute path')


def _open(path: str, flags: int, verb: str) -> int:
    # A new log is read-only for everybody: the open file can be added to, but nobody who opens it again by its name
    # (`> /dev/stderr` does, and so do tools that log to /dev/stdout) can truncate what the job has said before.
    try:
        return os.open(path, flags, 0o400)
    except OSError as error:
        raise CannotStart(f'{verb} "{path}": {errno_words(error.errno or 0)}') from None


def _sandboxed(
    attempt: Attempt, start: Start, machine: Machine, directory: str, path: str
) -> tuple[list[str], str]:
    assert machine.tools is not None
    program = start.argv[0]
    # Inside the sandbox nobody could tell a missing program from one that exits with 127.
    if "/" not in program and find_program(program, path) is None:
        raise CannotStart(missing_program(program, path))
    isolation = "bubblewrap"
    cgroup_files: tuple[str, ...] = ()
    group = machine.new_cgroup(start.token, start.memory_mib, start.vcpus)
    if group is not None:
        attempt.cgroup, attempt.enrolled = group, True
        cgroup_files = tuple(group.procs_files)
        isolation += f" + {machine.cgroup_words}"
    plan = SandboxPlan(
        directory=directory,
        tmp_directory=attempt.intended.private_directories[-1],
        shared_memory_mib=start.shared_memory_mib,
        # bubblewrap would make a missing one, on the host.
        hide=tuple(path for path in machine.settings.hide if os.path.isdir(path)),
        cgroup_files=cgroup_files,
    )
    return sandbox_command(machine.tools, machine.user, plan), isolation


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("windfall-job", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
