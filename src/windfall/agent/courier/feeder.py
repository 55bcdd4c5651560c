"""A process of its own that feeds the pipes of one attempt: `python -m windfall.agent.courier.feeder`, with what it is
told in its standard input.

Not a thread of the courier, because a pipe whose writer dies ends early and a job would take half of an epoch
for all of it: the feeder outlives the courier and the agent, and is killed with the attempt, whose mark it
carries in its environment. Decides when the next epoch's pipe appears: as soon as somebody has opened the one
before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import stat
import sys
import threading
import time

import msgspec

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.messages import Errand
from windfall.agent.courier.pipes import epoch
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.tree import Tree
from windfall.agent.demotion import Identity
from windfall.agent.errors import AgentError
from windfall.agent.places import INPUT, PROGRESS_DIRECTORY
from windfall.agent.speech import say
from windfall.agent.steward.client import Door
from windfall.agent.steward.leaving import leave_root
from windfall.agent.walking import open_if
from windfall.jobs.staging import Channel
from windfall.jobs.storage import StorageAccess
from windfall.objects.errors import Unreachable

_FEED_WITHIN_S = 600.0
#: Says why a channel cannot be fed, below the attempt's private directory.
FAILED = f"{PROGRESS_DIRECTORY}/feeder-failed"


class Order(msgspec.Struct, frozen=True):
    """What one feeder does."""

    #: Where the attempt's files are; relative to the attempts' directory for a feeder that is apart.
    root: str
    channels: tuple[Channel, ...]
    owner: tuple[int, int] | None
    objects_file: str | None
    storage: StorageAccess
    #: Where it says why a channel cannot be fed, below `root`.
    failed: str = FAILED
    #: Whether the job is another user than the feeder: the pipes are then for all who can reach them.
    is_foreign: bool = False


class Apart(msgspec.Struct, frozen=True):
    """Who a feeder becomes that was started as root, and how it reaches the steward."""

    user: Identity
    agent_directory: str
    attempts_directory: str
    token: str
    secret: str


class Told(msgspec.Struct, frozen=True):
    """All that a feeder is told; None means that it stays who it is and opens object storage itself."""

    order: Order
    apart: Apart | None = None


def failed_path(errand: Errand) -> str:
    """Return where the feeder of an attempt says why it failed.

    A container's user may be another one, whose file the feeder could not replace: its name is one that the job cannot
    know.
    """
    if not errand.is_foreign:
        return FAILED
    return f"{FAILED}-{hashlib.sha256(errand.secret.encode()).hexdigest()[:16]}"


def make_pipe(tree: Tree, channel: Channel, number: int, *, is_foreign: bool = False) -> str:
    """Make the pipe of one epoch, for the job to read; return its name among the inputs."""
    name = f"{channel.name}_{number}"
    with tree.directory(INPUT) as at, contextlib.suppress(FileExistsError):
        os.mkfifo(name, 0o600, dir_fd=at)
        if is_foreign:
            _open_to_all(name, at)
        if tree.owner is not None:
            os.chown(name, *tree.owner, dir_fd=at, follow_symlinks=False)
    return name


def _open_to_all(name: str, directory: int) -> None:
    """Let everybody use a pipe who may enter its directory: the job, whose user only its container's engine knows."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o666)  # noqa: S103 - the directory is closed to others
    finally:
        os.close(fd)


def open_pipe(tree: Tree, name: str) -> int:
    """Wait until somebody reads a pipe, and open it; CannotBring where the job has put something else there.

    The job may write into this directory: by a link it could otherwise have any file of the host overwritten.
    """
    try:
        with tree.directory(INPUT) as at:
            return open_if(stat.S_ISFIFO, name, at, os.O_WRONLY)
    except OSError:
        raise CannotBring(f"{INPUT}/{name} is no longer a pipe: the job must not replace it") from None


def tell_failure(tree: Tree, reason: str, path: str = FAILED) -> None:
    """Write down for the courier why a channel cannot be fed.

    The job may write there: by a link it could otherwise have any file of the host overwritten, with its own words.
    """
    try:
        tree.put(path, reason.encode(errors="replace"))
    except (OSError, AgentError) as error:
        say(f"{path} cannot be written, so the job waits for its time to be over: {error}")


def spawn_feeder(told: Told, environment: dict[str, str]) -> int:
    """Start a feeder; the environment carries its attempt's mark. Return its pid."""
    memory = os.memfd_create("windfall-feeder", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(msgspec.json.encode(told))
        os.lseek(memory, 0, os.SEEK_SET)
        command = [sys.executable, "-P", "-m", "windfall.agent.courier.feeder"]
        return os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, memory, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
            setsid=True,
            setsigdef=(signal.SIGCHLD,),
        )
    finally:
        os.close(memory)


def feed(order: Order, channel: Channel, stores: Stores) -> None:
    """Feed one channel's pipes, epoch after epoch; ends only by an error that a retry does not fix."""
    number, tree = 0, Tree(order.root, order.owner)
    name = make_pipe(tree, channel, number, is_foreign=order.is_foreign)
    while True:
        fd = open_pipe(tree, name)
        number += 1
        following = make_pipe(tree, channel, number, is_foreign=order.is_foreign)
        # A reader may have read all that it wants of this epoch.
        with contextlib.suppress(BrokenPipeError):
            _feed_epoch(fd, channel, stores, number - 1)
        # Only now: after any other error the pipe must not seem to end.
        os.close(fd)
        with contextlib.suppress(FileNotFoundError), tree.directory(INPUT) as at:
            os.unlink(name, dir_fd=at)
        name = following


def _feed_epoch(fd: int, channel: Channel, stores: Stores, number: int) -> None:
    """Write one epoch; where the store fails, go on behind what was written, so that no byte comes twice."""
    written = 0
    give_up_at = time.monotonic() + _FEED_WITHIN_S
    while True:
        try:
            skip = written
            for piece in epoch(channel, stores, number):
                if skip >= len(piece):
                    skip -= len(piece)
                    continue
                piece, skip = piece[skip:], 0
                while piece:
                    sent = os.write(fd, piece)
                    written += sent
                    piece = piece[sent:]
            return
        except Unreachable as error:
            if time.monotonic() >= give_up_at:
                raise
            say(f"channel {channel.name}: {error}; trying again")
            time.sleep(1.0)


def main() -> None:
    """Feed all channels of the order.

    If one cannot be fed, that is written down for the courier, and the pipe stays open: a job that saw its end
    would take the half for the whole.
    """
    # A notice to the attempt is none to its feeder: it ends with the attempt.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.umask(0o077)
    with open(0, "rb", closefd=False) as file:
        told = msgspec.json.decode(file.read(), type=Told)
    order, apart = told.order, told.apart
    if apart is None:
        stores = Stores(order.objects_file, order.storage)
    else:
        path = leave_root(apart.user, apart.agent_directory, apart.attempts_directory)
        stores = Stores(None, order.storage, Door(path, apart.token, apart.secret).open)

    def run(channel: Channel) -> None:
        try:
            feed(order, channel, stores)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the job must not wait for ever
            say(f"channel {channel.name} cannot be fed: {error}")
            reason = f"Data download failed for channel {channel.name}: {error}"
            tell_failure(Tree(order.root, order.owner), reason, order.failed)

    for channel in order.channels:
        threading.Thread(target=run, args=(channel,), name=channel.name, daemon=True).start()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
