"""From a `Start` message to a process that can be started: names checked, directories made,
environment completed.

Decides what an attempt sees; must not know the journal or what becomes of the process. Everything is done
with the agent's own rights, so no path that a job could have changed is followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from windfall.agent.attempt import Attempt
from windfall.agent.attempt_files import log_path
from windfall.agent.courier.tree import Tree
from windfall.agent.credentials import JobUser
from windfall.agent.directories import PrivateDirectories
from windfall.agent.entering import enter_as
from windfall.agent.errors import CannotStart
from windfall.agent.host_names import training_hosts, write_hosts
from windfall.agent.log_limit import lower_limit
from windfall.agent.log_room import open_log, open_or_refuse
from windfall.agent.machine import Machine
from windfall.agent.messages import Start
from windfall.agent.own_tmp import TmpView, named_paths, view_of_tmp
from windfall.agent.places import OWN, STAGED, Places, check_bind, wants_own_root
from windfall.agent.processes import AGENT_VARIABLE, TOKEN_VARIABLE
from windfall.agent.records import Intended
from windfall.agent.sandbox import DEFAULT_PATH, SandboxPlan, find_program, job_script, sandbox_command
from windfall.agent.sandbox_mounts import TMP, is_within
from windfall.agent.secrets import secret_values
from windfall.agent.spawner import PRIVATE_UMASK, USUAL_UMASK, Launch, errno_words, missing_program
from windfall.jobs.attempts import ML_ROOT_ELSEWHERE

#: Tokens look like `<job id>#<attempt>`. Never a leading dot: `..` would be the parent, and Forget removes
#: what it names.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:#-]{0,199}\Z", re.ASCII)


def intend(start: Start, machine: Machine, at: int) -> Intended:
    """Return what will be done, before anything is done."""
    own_root = start.staging is not None and wants_own_root(start.staging)
    sandboxed = machine.wants_sandbox(start.needs_sandbox or own_root, start.shared_memory_mib)
    # What stands for a child of a warm worker needs nothing: the worker has it.
    hosted = start.worker is not None
    sandboxed = sandboxed and not hosted
    # A container has a root of its own; only what is staged is shared with it.
    container = start.container is not None and not hosted
    base = os.path.join(machine.settings.attempts_directory, start.task_id)
    directories = [] if _named_directory(start) is not None or hosted else [base]
    if container:
        directories = [base] if start.staging is not None else []
    elif sandboxed:
        directories.append(base + ".tmp")
    if start.staging is not None:
        directories.append(base + STAGED)
    output = start.log_path or log_path(machine.settings.logs_directory, start.task_id)
    if not (_NAME.match(start.token) and _NAME.match(start.task_id)):
        directories, output = [], start.log_path
    return Intended(
        token=start.token,
        task_id=start.task_id,
        log_path=output,
        private_directories=directories,
        memory_mib=start.memory_mib,
        vcpus=start.vcpus,
        sandboxed=sandboxed or container,
        at=at,
        gpu_ids=start.gpu_ids,
        keeper=container,
        user=_own_user(start, machine),
        in_worker=hosted,
        stops_alone=start.stops_alone,
        log_limit_bytes=lower_limit(start.log_limit_bytes, machine.settings.log_limit_bytes),
    )


def _own_user(start: Start, machine: Machine) -> JobUser | None:
    if start.run_as is None:
        return None
    try:
        return machine.user_of(start.run_as)
    except CannotStart:
        return None  # What is wrong is told when the attempt is to be started.


def job_user(attempt: Attempt, machine: Machine) -> JobUser:
    """Return the user that an attempt runs as; raises CannotStart where there is no such user (any more)."""
    if attempt.intended.user is not None:
        return attempt.intended.user
    start = attempt.story.order or attempt.story.accepted
    return machine.user_of(start.run_as if start is not None else None)


def places_of(attempt: Attempt) -> Places:
    """Return where the files of a staged attempt are; their directory is the last of its private ones."""
    accepted, intended = attempt.story.accepted, attempt.intended
    if accepted is None or accepted.staging is None or not intended.private_directories:
        raise CannotStart("nothing can be staged for this attempt")
    return Places(intended.private_directories[-1], accepted.staging, intended.sandboxed)


def working_directory(attempt: Attempt, start: Start) -> str:
    """Return the working directory on this host."""
    named = _named_directory(start)
    if named is None or attempt.intended.keeper:
        return attempt.intended.private_directories[0]
    if start.staging is None or start.own_directory is not None or os.path.isdir(named):
        return named
    return places_of(attempt).real(named)


def _named_directory(start: Start) -> str | None:
    return start.directory if start.own_directory is None else start.own_directory


def make_directories(
    attempt: Attempt, start: Start, machine: Machine, directories: PrivateDirectories
) -> None:
    """Check the names and make the attempt's private directories; raises CannotStart."""
    check_start(start)
    user = job_user(attempt, machine)
    for path in attempt.intended.private_directories:
        try:
            directories.make(path, user)
        except OSError as error:
            raise CannotStart(f'mkdir "{path}": {errno_words(error.errno or 0)}', error.errno) from None


def prepare(
    attempt: Attempt,
    start: Start,
    machine: Machine,
    directories: PrivateDirectories,
    *,
    feed: str = "< /dev/null",
) -> Launch:
    """Make and open all that the process needs; raises CannotStart in a container engine's words.

    `feed` is the shell's redirection that gives a sandboxed job its standard input.
    """
    places, user = None, job_user(attempt, machine)
    if start.staging is None:
        make_directories(attempt, start, machine, directories)
    else:
        places = places_of(attempt)
    directory = working_directory(attempt, start)
    seen = start.directory if places is not None and places.sandboxed and start.directory else directory
    environment = job_environment(start, seen, user.name, machine.settings.agent_id)
    if start.gpu_share is not None and machine.shares is not None and start.gpu_ids:
        environment |= machine.shares.variables(
            start.token, start.gpu_ids[0], start.gpu_share, own_memory=attempt.intended.sandboxed
        )
    argv, isolation = start.argv, "process"
    if places is not None:
        environment, argv, isolation = _staged(attempt, places, environment, argv)
    if machine.credentials is not None:
        environment = {**machine.credentials.variables(start), **environment}
    environment = {**secret_values(machine.settings.secrets_directory, start.secrets), **environment}
    path = environment["PATH"]
    identity, stdin_fd = None, None
    if start.own_directory is not None:
        directory_fd, directory, identity = enter_as(user, directory, machine.settings.hide)
    else:
        directory_fd = _open_directory(directory, places)
    try:
        if attempt.intended.sandboxed:
            script = job_script(argv, environment, feed)
            argv, isolation = _sandboxed(attempt, start, machine, directory, environment, identity)
            stdin_fd = _memory_file(script)
            environment = {name: environment[name] for name in (TOKEN_VARIABLE, AGENT_VARIABLE)}
            environment["PATH"] = DEFAULT_PATH
        log_fd = open_log(attempt.intended.log_path)
    except BaseException:
        os.close(directory_fd)
        if stdin_fd is not None:
            os.close(stdin_fd)
        raise
    launch = Launch(
        start.token, argv, environment, path, directory, directory_fd, log_fd, stdin_fd, isolation
    )
    if attempt.intended.sandboxed:  # The rights are given up inside.
        return launch
    return launch._replace(user=user, umask=job_umask(start))


def job_umask(start: Start) -> int:
    """Return what a process without a sandbox lets others do with its files in /tmp and elsewhere."""
    return PRIVATE_UMASK if start.needs_sandbox else USUAL_UMASK


def _open_directory(path: str, places: Places | None) -> int:
    """Open the working directory; in one that the job's user has filled, no link is followed on the way."""
    if places is None or not path.startswith(f"{places.root}/"):
        return open_or_refuse(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, "chdir")
    try:
        with Tree(places.root, None).directory(path[len(places.root) + 1 :]) as fd:
            return os.dup(fd)
    except OSError as error:
        raise CannotStart(f'chdir "{path}": {errno_words(error.errno or 0)}', error.errno) from None


def _staged(
    attempt: Attempt, places: Places, environment: dict[str, str], argv: list[str]
) -> tuple[dict[str, str], list[str], str]:
    """Add what a staged job needs to know; without a sandbox its paths become the real ones."""
    launching = attempt.story.launching
    added = places.environment(launching.port if launching is not None else 0)
    environment = {name: places.translated(value) for name, value in environment.items()}
    # A job that names another metadata service means it.
    endpoint = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
    if endpoint in environment:
        added.pop(endpoint, None)
    environment.update(added)
    argv = [places.translated(argument) for argument in argv]
    isolation = "process" if places.sandboxed else f"process ({ML_ROOT_ELSEWHERE} {places.root})"
    return environment, argv, isolation


def job_environment(start: Start, directory: str, user: str, agent_id: str) -> dict[str, str]:
    """Return the complete environment of a job; which GPUs it sees is not its own to say."""
    # Programs that ask for the user's name, as PyTorch does, would fail for a user without an account.
    environment = {
        "PATH": DEFAULT_PATH,
        "HOME": directory,
        "USER": user,
        "LOGNAME": user,
        **start.environment,
    }
    devices = ",".join(start.gpu_ids)
    environment["NVIDIA_VISIBLE_DEVICES"] = devices or "void"
    environment["CUDA_VISIBLE_DEVICES"] = devices
    environment[TOKEN_VARIABLE] = start.token
    environment[AGENT_VARIABLE] = agent_id
    return environment


def check_start(start: Start) -> None:
    """Refuse what can be seen to be impossible; raises CannotStart."""
    for kind, name in (("token", start.token), ("task id", start.task_id)):
        if not _NAME.match(name):
            raise CannotStart(f'the {kind} "{name}" cannot name a file')
    if start.container is None and (not start.argv or not start.argv[0]):
        raise CannotStart("no command specified")
    for name, value in start.environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise CannotStart(f'"{name}" cannot be an environment variable')
    if any("\0" in argument for argument in _words(start)):
        raise CannotStart("an argument contains a zero byte")
    named = _named_directory(start)
    if named is not None and not os.path.isabs(named):
        raise CannotStart(f'chdir "{named}": not an absolute path')


def _words(start: Start) -> list[str]:
    run = start.container
    return start.argv if run is None else [run.image, *(run.entrypoint or ()), *run.command]


def _sandboxed(
    attempt: Attempt,
    start: Start,
    machine: Machine,
    directory: str,
    environment: Mapping[str, str],
    identity: str | None,
) -> tuple[list[str], str]:
    assert machine.tools is not None
    if start.needs_sandbox and directory == TMP:
        raise CannotStart(
            f'chdir "{TMP}": other tenants have jobs here, so each job has a {TMP} of its own: use another directory'
        )
    user, own_tmp = job_user(attempt, machine), _wants_own_tmp(start, machine)
    program, path = start.argv[0], environment["PATH"]
    # Inside the sandbox nobody could tell a missing program from one that exits with 127.
    found = program if "/" in program else find_program(program, path)
    if found is None:
        raise CannotStart(missing_program(program, path))
    view = TmpView()
    if own_tmp:
        named = named_paths([os.path.realpath(found), *start.argv], environment)
        elsewhere = [word for word in named if not is_within(word, directory)]
        view = view_of_tmp(elsewhere, user, machine.settings.hide, owners=_owners(start, user))
    if (problem := view.problem(found)) is not None:
        raise CannotStart(problem)
    isolation = machine.tools.words
    cgroup_files: tuple[str, ...] = ()
    group = machine.new_cgroup(start.token, start.memory_mib, start.vcpus)
    if group is not None:
        attempt.cgroup, attempt.enrolled = group, True
        cgroup_files = tuple(group.procs_files)
        isolation += f" + {machine.cgroup_words}"
    if start.staging is not None and directory.startswith(f"{places_of(attempt).root}/"):
        # It is seen with what holds it, and a path that the job's user has made is not for bubblewrap to follow.
        directory = places_of(attempt).root
    plan = SandboxPlan(
        directory=directory,
        tmp_directory=_tmp_directory(attempt) if own_tmp else None,
        shared_memory_mib=start.shared_memory_mib,
        # bubblewrap would make a missing one, on the host.
        hide=tuple(path for path in machine.settings.hide if os.path.isdir(path)),
        cgroup_files=cgroup_files,
        binds=_binds(attempt, start),
        seen_directory=start.directory if start.staging is not None else None,
        identity=identity,
        hosts_file=_hosts(attempt, start, machine),
        shown=view.shown,
    )
    return sandbox_command(machine.tools, user, plan), isolation


def _owners(start: Start, user: JobUser) -> frozenset[int] | None:
    """Whose files of the host's /tmp the job may see, None for everybody's: other tenants' jobs may have its user."""
    if not start.needs_sandbox:
        return None
    return frozenset({0} if start.run_as is None else {0, user.uid})


def _hosts(attempt: Attempt, start: Start, machine: Machine) -> str | None:
    hosts = training_hosts(start.staging)
    if not hosts:
        return None
    alone = start.staging is None or not start.staging.hosts
    # The names of several are of one attempt alone, and lie where only Windfall writes.
    directory = machine.settings.directory if alone else f"{places_of(attempt).root}/{OWN}"
    return write_hosts(directory, hosts)


def _wants_own_tmp(start: Start, machine: Machine) -> bool:
    """Whether /tmp is the attempt's own: not for a job that has a sandbox for its checkpoint directory alone.

    Such a job would run as a plain process otherwise, with its program or data perhaps below /tmp. Nor for one that
    starts where its submitter stands, which sees what the submitter sees, unless it must be kept apart from others.
    """
    is_training = start.staging is not None and start.staging.wants_ml_root
    if start.own_directory is not None:
        return is_training or start.needs_sandbox or start.shared_memory_mib is not None
    return is_training or machine.wants_sandbox(start.needs_sandbox, start.shared_memory_mib)


def _tmp_directory(attempt: Attempt) -> str:
    # What is staged comes after it in the list that `intend` made.
    return attempt.intended.private_directories[-1 if attempt.story.accepted is None else -2]


def _binds(attempt: Attempt, start: Start) -> tuple[tuple[str, str], ...]:
    if start.staging is None:
        return ()
    binds = tuple(places_of(attempt).binds())
    for _, seen in binds:
        check_bind(os.path.realpath(seen))
    return binds


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("windfall-job", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
