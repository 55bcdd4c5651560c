"""From a `Start` message to a keeper that can be started: its directory, its orders, its command.

Decides what a container sees of what was staged for it, and where a keeper's files are. Must not know what becomes of
the keeper.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

import windfall
from windfall.agent.attempt import Attempt
from windfall.agent.container.finding import NO_ENGINE, EngineFacts
from windfall.agent.container.notebook import ORDERS, PIPES, SECRETS, STATE
from windfall.agent.container.request import (
    WORK,
    Wanted,
    create_body,
    is_published,
    isolation_words,
    network_of,
)
from windfall.agent.container.state import KeeperState
from windfall.agent.errors import CannotStart
from windfall.agent.host_names import training_hosts
from windfall.agent.launching import SOCKET_NAME
from windfall.agent.log_room import open_log
from windfall.agent.machine import Machine
from windfall.agent.messages import Start
from windfall.agent.places import OWN, PROGRESS_DIRECTORY, Places, check_bind
from windfall.agent.preparation import check_start, job_environment, places_of
from windfall.agent.processes import AGENT_VARIABLE, TOKEN_VARIABLE
from windfall.agent.records import Intended
from windfall.agent.sandbox import DEFAULT_PATH
from windfall.agent.spawner import Launch, errno_words

DIRECTORY_NAME = "containers"
_METADATA = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
#: What a server that is a process, or is on the host's network, is told.
_PORT_VARIABLES = ("SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_SAFE_PORT_RANGE")
_KEEPER = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from windfall.agent.container.keeper import main; sys.exit(main(sys.argv[2]))"
)
#: How long an engine may be away before a container that does not exist is given up.
_PATIENCE_S = 60.0


class WorkerOrders(msgspec.Struct, frozen=True):
    """What makes a container a warm worker."""

    #: `module:function`, and the part of ours that calls it; both empty for a program that speaks lines.
    target: str = ""
    source: str = ""


class Orders(msgspec.Struct, frozen=True):
    """What a keeper reads."""

    token: str
    agent_socket: str
    socket: str
    api: str
    name: str
    image: str
    pull: str
    body: dict[str, Any]
    isolation: str
    #: Each with the fields of jobs.containers.Secret; their values are read by the keeper.
    secrets: list[Any] = []
    secrets_directory: str | None = None
    #: The private directory of a staged attempt, what in it is ours, and what of that is the job's all the same.
    staged_root: str | None = None
    staged_own: str = OWN
    staged_kept: list[str] = []
    #: The private directory that is the working directory, if one is.
    work: str | None = None
    patience_s: float = _PATIENCE_S
    #: None for a container that is an attempt.
    worker: WorkerOrders | None = None


def short_name(token: str) -> str:
    """Return what stands for a token in the names of files and containers."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def container_name(agent_id: str, token: str) -> str:
    """Return the name of an attempt's container: the same for every keeper of it."""
    return f"windfall-{agent_id}-{short_name(token)}"


def keeper_directory(machine: Machine, token: str) -> str:
    """Return where the files of an attempt's keeper are."""
    return os.path.join(machine.settings.directory, DIRECTORY_NAME, short_name(token))


def read_state(machine: Machine, token: str) -> KeeperState:
    """Return what a keeper has written down; nothing where it has not."""
    try:
        with open(f"{keeper_directory(machine, token)}/{STATE}", "rb") as file:
            return msgspec.json.decode(file.read(), type=KeeperState)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return KeeperState()


def write_orders(
    attempt: Attempt, start: Start, machine: Machine, worker: WorkerOrders | None = None
) -> None:
    """Make a keeper's directory with its orders in it; raises CannotStart."""
    engine = machine.engine.look() if machine.engine is not None else None
    if engine is None:
        raise CannotStart(f"CannotCreateContainerError: {NO_ENGINE}")
    if attempt.story.accepted is None:
        check_start(start)
    directory = keeper_directory(machine, start.token)
    orders = make_orders(attempt, start, machine, engine, directory, worker)
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        fresh = f"{directory}/{ORDERS}.new"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(orders))
        os.rename(fresh, f"{directory}/{ORDERS}")
    except OSError as error:
        raise CannotStart(f'write "{directory}": {errno_words(error.errno or 0)}', error.errno) from None


def make_orders(
    attempt: Attempt,
    start: Start,
    machine: Machine,
    engine: EngineFacts,
    directory: str,
    worker: WorkerOrders | None = None,
) -> Orders:
    """Say what a keeper is to do."""
    run, settings = start.container, machine.settings
    assert run is not None
    places = places_of(attempt) if start.staging is not None else None
    gets_credentials = start.storage is not None and start.storage.for_programs
    wants_host = places is not None or gets_credentials
    network = network_of(engine, run.options, wants_host=wants_host)
    work, gpu_ids = _work(attempt, start), _real_gpus(start, machine)
    if work is None and start.staging is not None and any(one.patterns for one in start.staging.outputs):
        # Nothing that the program writes would be found.
        raise CannotStart(
            "CannotCreateContainerError: windfall:keep is about a job's private directory, which this container does"
            " not see: write to $WINDFALL_CHECKPOINT_DIR with windfall:checkpoint, or run the job as a process"
        )
    if gpu_ids and not engine.gives_gpus:
        raise CannotStart(
            f"CannotCreateContainerError: {engine.words} gives no GPUs to containers that are asked for by its socket:"
            " use Podman 5.4 or newer, or Docker"
        )
    wanted = Wanted(
        token=start.token,
        task_id=start.task_id,
        agent_id=settings.agent_id,
        run=run,
        environment=_environment(attempt, start, machine, places, network),
        vcpus=start.vcpus,
        memory_mib=start.memory_mib,
        gpu_ids=gpu_ids,
        shared_memory_mib=start.shared_memory_mib,
        binds=_binds(places, work),
        work=WORK if work is not None else None,
        wants_host_network=wants_host,
        hosts=training_hosts(start.staging),
        hard_cpu_limit=settings.hard_cpu_limit,
        secrets_directory=f"{directory}/{SECRETS}" if run.options.secrets else None,
        pipes_directory=f"{directory}/{PIPES}" if worker is not None else None,
    )
    return Orders(
        token=start.token,
        agent_socket=os.path.join(settings.directory, SOCKET_NAME),
        socket=engine.socket,
        api=engine.api,
        name=container_name(settings.agent_id, start.token),
        image=run.image,
        pull=run.options.pull.value,
        body=create_body(engine, wanted),
        isolation=isolation_words(engine, network, run.options),
        secrets=list(run.options.secrets),
        secrets_directory=settings.secrets_directory,
        staged_root=places.root if places is not None else None,
        staged_kept=[PROGRESS_DIRECTORY, *_kept_checkpoints(places)],
        work=work,
        worker=worker,
    )


def keeper_launch(intended: Intended, machine: Machine) -> Launch:
    """Return how the keeper of an attempt is started, for the first time or again; its orders are there."""
    directory = keeper_directory(machine, intended.token)
    try:
        with open(f"{directory}/{ORDERS}", "rb") as file:
            orders = msgspec.json.decode(file.read(), type=Orders)
        directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        raise CannotStart(f"the orders of its keeper cannot be read: {error}", number) from None
    try:
        log_fd = open_log(intended.log_path)
    except BaseException:
        os.close(directory_fd)
        raise
    root = os.path.dirname(os.path.dirname(os.path.abspath(windfall.__file__)))
    argv = [sys.executable, "-I", "-S", "-c", _KEEPER, root, directory]
    environment = {
        TOKEN_VARIABLE: intended.token,
        AGENT_VARIABLE: machine.settings.agent_id,
        "PATH": DEFAULT_PATH,
    }
    # Where `docker login` keeps its passwords.
    environment |= {name: os.environ[name] for name in ("HOME", "DOCKER_CONFIG") if name in os.environ}
    return Launch(
        intended.token,
        argv,
        environment,
        DEFAULT_PATH,
        directory,
        directory_fd,
        log_fd,
        None,
        orders.isolation,
    )


def _environment(
    attempt: Attempt, start: Start, machine: Machine, places: Places | None, network: str
) -> dict[str, str]:
    """Return the variables of a container; those of its user are the image's unless the job names them."""
    environment = job_environment(start, "", "", machine.settings.agent_id)
    if start.gpu_share is not None and machine.shares is not None and start.gpu_ids:
        gpu, share = start.gpu_ids[0], start.gpu_share
        environment |= machine.shares.variables(start.token, gpu, share, own_memory=True)
    for name in ("PATH", "HOME", "USER", "LOGNAME"):
        if name not in start.environment:
            environment.pop(name, None)
    if network == "host" and machine.credentials is not None:
        # They are at the host's own loopback address.
        environment = {**machine.credentials.variables(start), **environment}
    if start.container is not None and is_published(network, start.container.options):
        # In a network of its own it listens where the contract says.
        environment = {name: value for name, value in environment.items() if name not in _PORT_VARIABLES}
    if places is None:
        return environment
    launching = attempt.story.launching
    added: Mapping[str, str] = places.environment(launching.port if launching is not None else 0)
    # The endpoint is at the host's own loopback address; and a job that names another metadata service means it.
    keeps = {name for name in added if name != _METADATA or (network == "host" and name not in environment)}
    return {**environment, **{name: added[name] for name in keeps}}


def _work(attempt: Attempt, start: Start) -> str | None:
    git = start.staging.git if start.staging is not None else None
    return attempt.intended.private_directories[0] if git is not None and git.path is None else None


def _binds(places: Places | None, work: str | None) -> list[tuple[str, str]]:
    binds = [] if places is None else list(places.binds())
    for _, seen in binds:
        check_bind(os.path.normpath(seen))
    return binds + ([(work, WORK)] if work is not None else [])


def _kept_checkpoints(places: Places | None) -> list[str]:
    if places is None or places.checkpoints_elsewhere is None:
        return []
    return [places.inside(places.checkpoints_elsewhere)]


def _real_gpus(start: Start, machine: Machine) -> list[str]:
    simulated = {gpu.id for gpu in machine.gpus if gpu.simulated}
    return [gpu for gpu in start.gpu_ids if gpu not in simulated and not gpu.startswith("GPU-simulated-")]
