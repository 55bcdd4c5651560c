"""What daemon and agent say to one another: one JSON object per line over a unix stream socket.

This module decides the shapes and nothing else; it must not know processes, files or sockets. Times are
integer milliseconds since the epoch. A token names one attempt for ever: the agent never starts a token
that it knows.

The daemon speaks first (`Hello`); the agent answers with one `Inventory`, then repeats every result that
was not yet acknowledged with `Forget`, then reports as things happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from windfall.agent import message
from windfall.agent.errors import ProtocolError
from windfall.agent.gpus import GpuDevice
from windfall.agent.mirror_messages import LogHave, LogPiece
from windfall.jobs.containers import ContainerRun, Secret
from windfall.jobs.diagnosis import Diagnosis
from windfall.jobs.job_users import RunAs
from windfall.jobs.staging import LeftFiles, Mark, Progress, Staging
from windfall.jobs.storage import StorageAccess
from windfall.jobs.workers import Worker

#: The state of an attempt as the agent knows it.
AttemptState: TypeAlias = Literal["starting", "running", "exited", "refused", "lost"]


#: The version of what daemon and agent say to one another, and the oldest that this one understands. Both are exchanged
#: at the connection, and a side that cannot understand the other refuses it. An unknown field is ignored and a missing
#: one has its default, so that only a new message, or a new meaning, needs a new version. Version 0.1 named none, which
#: reads as 0. 2 has Provide.
PROTOCOL, OLDEST_PROTOCOL = 2, 0

#: Base of everything that crosses the socket.
Message = message.Message


# --- daemon -> agent --------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag=True):
    """Opens a connection; a connection with a lower epoch than one seen before is refused."""

    epoch: int
    protocol: int = 0
    oldest_protocol: int = 0


class Ping(Message, frozen=True, tag=True):
    """Is anybody there? Needs no greeting: a socket may accept a connection although its agent is dying."""

    #: What the last word that the daemon has heard of this agent said about when it was sent (`sent_ms`); 0: none did.
    heard_ms: int = 0
    #: After how long without a word attempts here go on elsewhere; 0 where that never happens.
    lose_after_s: float = 0.0


class Start(Message, frozen=True, tag=True):
    """Start one attempt; repeated for a known token it only repeats the answer."""

    token: str
    task_id: str
    argv: list[str]
    #: The complete environment of the job; the agent adds PATH, HOME, WINDFALL_ATTEMPT and the GPU variables.
    environment: dict[str, str]
    #: The working directory; None asks for a private one that is removed at `Forget`.
    directory: str | None
    #: Where its output goes; empty leaves that to the agent, which writes to its own directory of logs.
    log_path: str
    vcpus: float
    memory_mib: int
    gpu_ids: list[str]
    shared_memory_mib: int | None = None
    needs_sandbox: bool = False
    #: What is brought before the start and saved after the end; None starts at once.
    staging: Staging | None = None
    #: What fences off earlier attempts of the same job: higher is newer.
    fence: int = 0
    #: For the instance's metadata.
    instance: str = ""
    instance_type: str = ""
    market: str = "on-demand"
    #: Set for a container; `argv` and `directory` are then not used.
    container: ContainerRun | None = None
    #: The part of its one GPU that it may use; None means all of them.
    gpu_share: float | None = None
    #: Set for a child that is to run in a warm worker; `worker_key` names whose worker it may share.
    worker: Worker | None = None
    worker_key: str = ""
    #: What a process gets as variables; a container has them in its options.
    secrets: tuple[Secret, ...] = ()
    #: What of object storage may be opened for it; None only in journals of versions that did not restrict it.
    storage: StorageAccess | None = None
    #: The user of this attempt; None means the one that the agent's settings name.
    run_as: RunAs | None = None
    #: Whose credentials for Git its code is fetched with; empty, as from an earlier version, means nobody's.
    tenant: str = ""
    #: A working directory that the submitter named: it is entered with the rights of the job's user alone. It is not in
    #: `directory`, which an agent of an earlier version would open with its own rights.
    own_directory: str | None = None
    #: The attempt whose place it gets: it begins when that one has ended.
    behind: str = ""
    #: Whether it is ended before it goes on elsewhere, when no daemon is heard.
    stops_alone: bool = False
    #: What its log may have at most, if that is less than the agent's own limit.
    log_limit_bytes: int | None = None


class Stop(Message, frozen=True, tag=True):
    """SIGTERM to every process of the attempt now, SIGKILL to what is left after the grace."""

    token: str
    grace_s: float
    #: Whether its host is really gone: nothing that it left may be saved.
    lose: bool = False
    #: How long what it left may take to be saved; None where nothing presses.
    save_within_s: float | None = None
    #: Whether nobody wants what cannot be stored by then.
    gives_up: bool = False
    #: Whether it is only to be given back, if nothing of it was begun; what runs goes on.
    if_unbegun: bool = False


class Interrupt(Message, frozen=True, tag=True):
    """Notice: the place is taken away at the deadline; until then the attempt may save and leave."""

    token: str
    deadline_at: int
    words: str = ""


class Rebalance(Message, frozen=True, tag=True):
    """The place may be taken away soon."""

    token: str
    at: int


class Forget(Message, frozen=True, tag=True):
    """The daemon has durably recorded these results; the agent may drop them and their directories."""

    tokens: list[str]


class Shutdown(Message, frozen=True, tag=True):
    """End the agent; with `kill` every attempt is stopped first, without it all run on, to be adopted."""

    kill: bool
    grace_s: float = 10.0


class Exec(Message, frozen=True, tag=True):
    """Run a command inside a running attempt, for a person. First and only message of a connection of its own.

    The connection becomes the line of that session: what follows on it are the frames of inside/frames.py.
    """

    session: str
    token: str
    #: Empty for a shell: the one named, if it is there, else /bin/sh.
    command: list[str]
    shell: str
    tty: bool
    rows: int
    columns: int
    term: str


class Provide(Message, frozen=True, tag=True):
    """What attempts need and a machine without the daemon's disk lacks: written to files there, never to the journal.

    Only an agent whose settings say so (`provided`) takes it.
    """

    #: The variables that open object storage, all of them; None leaves those of before.
    objects: dict[str, str] | None = None
    #: Values of secrets and of credentials for Git, by their kept names. Each is removed when no attempt needs it.
    secrets: dict[str, str] = {}  # noqa: RUF012 (msgspec copies it)
    #: Kept names of secrets that the daemon does not have any more.
    withdrawn: list[str] = []  # noqa: RUF012 (msgspec copies it)

    def __repr__(self) -> str:
        """Without any value: messages may end up in errors."""
        return f"Provide(secrets={sorted(self.secrets)}, withdrawn={self.withdrawn})"


class ContainerNews(Message, frozen=True, tag=True):
    """A keeper has written down something about its container; it needs no greeting."""

    token: str


# --- agent -> daemon --------------------------------------------------------------------------------


class AttemptStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt in the inventory."""

    token: str
    task_id: str
    state: AttemptState
    pid: int | None = None
    started_at: int | None = None
    isolation: str = ""
    #: As in `Started`.
    prepared_at: int | None = None


class Inventory(Message, frozen=True, tag=True):
    """What the machine has and what runs on it; once per connection."""

    hostname: str
    agent_pid: int
    vcpus: float
    memory_mib: int
    gpus: list[GpuDevice]
    #: What a plain and a sandboxed attempt get here, e.g. "bubblewrap", "cgroup v1 (memory, cpu)".
    abilities: list[str]
    job_user: str
    #: One line each, meant for the user.
    warnings: list[str]
    attempts: list[AttemptStatus]
    #: The digest of the settings that this agent was started with, perhaps long ago.
    settings: str = ""
    #: The container engine that answers here, such as "docker 28.2"; empty when none does.
    containers: str = ""
    #: How fast the card of the default route is by its own word; None when it does not say.
    network_mbits: int | None = None
    #: Whether an attempt can be started as any user (`Start.run_as`).
    any_user: bool = False
    #: Whether an attempt can be kept back behind another one (`Start.behind`).
    keeps_standbys: bool = False
    #: What tells the machine from all others, kept on the agent's disk; empty from an agent that has no such name.
    machine_id: str = ""
    protocol: int = 0
    oldest_protocol: int = 0
    #: The agent's clock when it said this.
    now: int = 0
    #: The address by which other machines reach this one, and the network interface that has it; empty if unknown.
    address: str = ""
    interface: str = ""
    #: Kept names of the secrets that it was provided with and still has.
    secrets: list[str] = []  # noqa: RUF012 (msgspec copies it)
    #: As in `Pong`.
    sent_ms: int = 0


class Rejected(Message, frozen=True, tag=True):
    """The connection is refused; the socket is closed after it."""

    reason: str
    epoch: int
    #: Whether it is for what the daemon speaks: no epoch will do.
    incompatible: bool = False


class Pong(Message, frozen=True, tag=True):
    """Somebody is."""

    #: The agent's clock when it said this.
    now: int = 0
    #: The same by a clock that nobody sets (alone.py).
    sent_ms: int = 0


class Started(Message, frozen=True, tag=True):
    """The attempt's process exists."""

    token: str
    pid: int
    at: int
    isolation: str
    #: When all that it needed had been brought; None when nothing had to be.
    prepared_at: int | None = None


class Progressed(Message, frozen=True, tag=True):
    """News of a staged attempt; None means no news of that part, except for `doing` and `alarm`."""

    token: str
    at: int
    doing: str | None = None
    restored: Mark | None = None
    checkpoint: Mark | None = None
    alarm: str | None = None
    progress: Progress | None = None
    commit: str | None = None
    exited_at: int | None = None


class Enrolled(Message, frozen=True, tag=True):
    """The isolation in force has changed, e.g. a plain attempt was put under its cgroup limits."""

    token: str
    isolation: str


class Exited(Message, frozen=True, tag=True):
    """The attempt's main process ended and everything that it left behind was killed."""

    token: str
    #: As Docker has it: 128 + n for a signal n.
    exit_code: int | None
    reason: str | None
    started_at: int
    at: int
    isolation: str
    #: When the process ended, if what it left had to be saved afterwards (`at` is then the end of that).
    exited_at: int | None = None
    checkpoint: Mark | None = None
    progress: Progress | None = None
    failure: str | None = None
    diagnosis: Diagnosis | None = None
    left: LeftFiles | None = None
    #: Whether its agent asked it to end because no daemon was heard.
    alone: bool = False


class Refused(Message, frozen=True, tag=True):
    """The attempt could not be started; nothing of it ran."""

    token: str
    reason: str
    at: int
    #: Whether it was asked to go before anything of it was begun.
    given_back: bool = False


class Lost(Message, frozen=True, tag=True):
    """Nobody can know how the attempt ended; nothing of it runs."""

    token: str
    at: int


class Noticed(Message, frozen=True, tag=True):
    """Whether the machine itself will be taken away has changed; at a connection only if it will be."""

    #: When it goes; None when nobody says that it does.
    deadline_at: int | None = None
    words: str = ""
    #: Whether it is likelier than before to be taken away.
    rebalance: bool = False


class Devices(Message, frozen=True, tag=True):
    """What the machine's GPUs are, or how they are, has changed."""

    gpus: list[GpuDevice]


_Instruction: TypeAlias = Start | Stop | Interrupt | Rebalance | Forget | Shutdown
ToAgent: TypeAlias = Hello | Ping | _Instruction | Provide | LogHave | ContainerNews | Exec
Result: TypeAlias = Exited | Refused | Lost
_Report: TypeAlias = Started | Enrolled | Progressed | Devices | Noticed | LogPiece
ToDaemon: TypeAlias = Inventory | Pong | Rejected | _Report | Result


def misfit(theirs: Hello | Inventory, them: str, us: str) -> str | None:
    """Why the two sides of a connection cannot understand each other, and what to do; None if they can."""
    if theirs.protocol >= OLDEST_PROTOCOL and theirs.oldest_protocol <= PROTOCOL:
        return None
    return (
        f"{them} speaks protocol {theirs.oldest_protocol} to {theirs.protocol},"
        f" and {us} {OLDEST_PROTOCOL} to {PROTOCOL};"
        " use the version of Windfall that started the agent until its jobs have ended"
    )


_encoder = msgspec.json.Encoder()
_to_agent = msgspec.json.Decoder(ToAgent)
_to_daemon = msgspec.json.Decoder(ToDaemon)


def encode(messages: Sequence[Message]) -> bytes:
    """Encode messages as lines."""
    return _encoder.encode_lines(messages)


def decode_for_agent(lines: bytes) -> Iterable[ToAgent]:
    """Decode complete lines that the daemon sent."""
    try:
        return _to_agent.decode_lines(lines)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the daemon sent what is not a message of this version: {error}") from None


def decode_for_daemon(lines: bytes) -> Iterable[ToDaemon]:
    """Decode complete lines that the agent sent."""
    try:
        return _to_daemon.decode_lines(lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the agent sent what is not a message of this version: {error}") from None
