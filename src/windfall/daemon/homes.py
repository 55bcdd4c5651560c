"""Which data directories use a store that daemons share, and what is by nature on one machine only.

Decides whether a daemon may begin in its directory. An agent of the daemon's own host, and the objects of the S3 server
that a daemon starts, are reached by daemons of that directory alone; a daemon elsewhere could neither adopt those jobs
nor read those objects. So with several directories no daemon may have either. Must not know keys or secrets.
"""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import msgspec

from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.settings import Settings
from windfall.store.coordination import SharedValues

_HOME = "home/"


class Home(msgspec.Struct, frozen=True):
    """One data directory."""

    host: str
    path: str
    #: Whether jobs run on its own host, and whether objects are kept there.
    own_agent: bool
    own_s3: bool

    @property
    def where(self) -> str:
        """For people, and for scp."""
        return f"{self.host}:{self.path}"


def homes_of(values: SharedValues) -> dict[str, Home]:
    """The data directories of a store, by their ids."""
    names = [name for name in values.versions() if name.startswith(_HOME)]
    return {
        name: msgspec.json.decode(row.value, type=Home)
        for name, row in values.read(names).items()
        if row.value is not None
    }


def enter(values: SharedValues, settings: Settings, directory: DataDirectory, now: int) -> None:
    """Be one of the directories of a store; DaemonError says what stands against it."""
    if settings.hosts_only and directory.has_agent:
        raise DaemonError(
            f"an agent of {directory.root} still runs on this host, and a daemon with --hosts-only would not reach its"
            " jobs: start it without --hosts-only, and end it with `windfall down` when no job runs here"
        )
    data = settings.data.resolve()
    mine = Home(socket.gethostname(), str(data), not settings.hosts_only, settings.s3)
    own_id = _HOME + hashlib.sha256(f"{_machine_id()}\0{data}".encode()).hexdigest()[:24]
    homes = homes_of(values)
    if settings.forget_directories:
        for name in homes.keys() - {own_id}:
            values.put(name, None, now)
        homes = {name: home for name, home in homes.items() if name == own_id}
    _check(mine, [home for name, home in homes.items() if name != own_id])
    if homes.get(own_id) == mine:
        return
    values.put(own_id, msgspec.json.encode(mine), now)
    try:
        # Two may begin at once: each then sees the other.
        _check(mine, [home for name, home in homes_of(values).items() if name != own_id])
    except DaemonError:
        before = homes.get(own_id)
        values.put(own_id, None if before is None else msgspec.json.encode(before), now)
        raise


def _check(mine: Home, others: list[Home]) -> None:
    """Refuse what only one of several directories would have."""
    if not others:
        return
    gone = (
        "If that directory is gone for good, add --forget-directories once: jobs that run under its agent are then"
        " lost, and retried by their rules"
    )
    others.sort(key=lambda home: (home.own_agent, home.own_s3), reverse=True)
    other = others[0]
    if other.own_s3 or other.own_agent:
        what = "jobs under its own agent" if other.own_agent else "an S3 server of its own"
        raise DaemonError(
            f"the daemon of {other.where} uses the same store and has {what}, which a daemon of another directory"
            f" cannot reach. Start all of them with --hosts-only and without --s3. {gone}"
        )
    if mine.own_agent:
        raise DaemonError(
            f"the daemon of {other.where} uses the same store, and could not reach jobs under this host's own agent:"
            f" add --hosts-only, and let jobs run here by `windfall hosts add` with this host's name. {gone}"
        )
    if mine.own_s3:
        raise DaemonError(
            f"the daemon of {other.where} uses the same store, and would not find objects in an S3 server of this one:"
            f" leave --s3 out, and name an S3 that all reach with --objects s3://BUCKET. {gone}"
        )


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return socket.gethostname()
