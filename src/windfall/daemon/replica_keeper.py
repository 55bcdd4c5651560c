"""The replicas of endpoints as they really are: pinged, drained, and published to the usher.

Only the leader does this. It asks each replica over the way that requests take, from the host where the usher is, so
that a replica which cannot be reached is not routed to. While no daemon leads, the last table serves, and the usher
passes over replicas that do not answer. Decides what counts as an answer; what follows from it is the core's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windfall.agent.socket_paths import short_path
from windfall.control.commands.hosting import ReplicaDrained, ReplicaReady, ReplicaReport, ReplicaSilent
from windfall.control.instructions import PublishRoutes
from windfall.control.replicas import LOOPBACK
from windfall.control.serving_routes import routes_of, running_attempt
from windfall.control.state import State
from windfall.daemon.listeners import listener_uids, why_foreign
from windfall.hosting.endpoint import Replica, ReplicaState
from windfall.hosting.routes import RouteTable
from windfall.hosting.traffic import UsherTraffic
from windfall.jobs.ids import AttemptToken
from windfall.jobs.submitters import Submitter
from windfall.usher.table_file import RouteWriter

log = logging.getLogger(__name__)

#: How often replicas are looked at, and how often a ready one is pinged.
LOOK_EVERY_S, PING_EVERY_S = 0.25, 5.0
#: SageMaker's limit for the answer to a ping.
PING_S = 2.0
#: Pings in a row without an answer after which a ready replica is replaced.
SILENT_AFTER = 3
USHER_S = 5.0
#: How long a first replica waits for an usher that does not start.
USHER_AWAY_S = 30.0
_ANSWER_BYTES = 64 * 1024 * 1024
#: What an usher that is not there has counted.
NOTHING = UsherTraffic("", 0, 0, 0, 0, 0, ())


@dataclass(slots=True)
class _Watch:
    """One attempt of a replica."""

    asked_at: float = 0.0
    misses: int = 0
    #: When it first answered.
    well_since: float = 0.0
    asking: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a replica should listen, and who asked for it."""

    address: str
    port: int
    submitter: Submitter


class ReplicaKeeper:
    """Follows the replicas in the state, and reports what it finds."""

    def __init__(
        self, state: State, report: Callable[[ReplicaReport], None], usher: Path, socket: Path
    ) -> None:
        """`usher` is the usher's directory and `socket` its socket there."""
        self._state = state
        self._report = report
        self._routes = RouteWriter(usher)
        self._socket = socket
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="routes")
        self._watches: dict[AttemptToken, _Watch] = {}
        self._published = 0
        self._writing: set[asyncio.Future[None]] = set()

    def publish(self, _: PublishRoutes | None = None) -> None:
        """Write the table as the state is now, which has just become durable."""
        table = RouteTable(1, routes_of(self._state))
        future = asyncio.get_running_loop().run_in_executor(self._writer, self._write, table)
        self._writing.add(future)
        future.add_done_callback(self._writing.discard)

    def _write(self, table: RouteTable) -> None:
        try:
            self._published = self._routes.write(table).version
        except OSError as error:
            log.warning("the table of endpoints cannot be written: %s; the one before serves on", error)

    async def run(self) -> None:
        """Look at all replicas, for ever."""
        self.publish()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._state.endpoints:
                await self._look()

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        present: set[AttemptToken] = set()
        draining: list[AttemptToken] = []
        for endpoint in list(self._state.endpoints.values()):
            for replica in endpoint.replicas:
                running = running_attempt(self._state, replica)
                if running is None:
                    continue
                token, address = running
                present.add(token)
                if replica.state is ReplicaState.DRAINING:
                    draining.append(token)
                elif replica.state is not ReplicaState.LEAVING:
                    self._ask(token, _Place(address, replica.port, endpoint.submitter), replica, now)
        for token in self._watches.keys() - present:
            del self._watches[token]
        if draining:
            await self._look_at_drains(draining)

    def _ask(self, token: AttemptToken, place: _Place, replica: Replica, now: float) -> None:
        watch = self._watches.setdefault(token, _Watch())
        pause = PING_EVERY_S if replica.state is ReplicaState.READY else LOOK_EVERY_S
        if now - watch.asked_at < pause or (watch.asking is not None and not watch.asking.done()):
            return
        watch.asked_at = now
        is_ready = replica.state is ReplicaState.READY
        watch.asking = asyncio.create_task(self._asked(watch, token, place, is_ready))

    async def _asked(self, watch: _Watch, token: AttemptToken, place: _Place, is_ready: bool) -> None:
        problem = self._foreign(place) or await ping(place.address, place.port)
        watch.misses = 0 if problem is None else watch.misses + 1
        if problem is None and not is_ready:
            now = asyncio.get_running_loop().time()
            watch.well_since = watch.well_since or now
            if await self._may_be_asked(now - watch.well_since):
                self._report(ReplicaReady(token))
        elif is_ready and watch.misses >= SILENT_AFTER:
            words = f"it does not answer GET /ping any more ({problem})"
            self._report(ReplicaSilent(token, words))

    def _foreign(self, place: _Place) -> str | None:
        """Why what listens there must not answer; of other machines nothing is known."""
        if place.address != LOOPBACK or place.submitter.user is not None:
            return None
        return why_foreign(listener_uids(place.port), place.submitter.tenant, self._state.job_users.owners)

    async def _look_at_drains(self, draining: list[AttemptToken]) -> None:
        """Report those that the usher knows to drain and has no request of."""
        try:
            traffic = await self._followed()
        except (FileNotFoundError, ConnectionRefusedError):
            # There is no usher, so that nobody has a request of theirs.
            traffic = NOTHING
        if traffic is None:
            return
        busy = {
            replica.id
            for endpoint in traffic.endpoints
            for variant in endpoint.variants
            for replica in variant.replicas
            if replica.in_flight
        }
        for token in draining:
            if token not in busy:
                self._report(ReplicaDrained(token))

    async def _may_be_asked(self, waited_s: float) -> bool:
        """Whether requests reach a replica: an endpoint that is in service must answer, so the usher comes first."""
        try:
            return await self._followed() is not None
        except OSError:
            # What keeps the usher away keeps no replica from being well; the daemon's log says what it is.
            return waited_s >= USHER_AWAY_S

    async def _followed(self) -> UsherTraffic | None:
        """What the usher has counted, if it follows the newest table; raises OSError where there is none."""
        if self._writing:
            return None
        try:
            traffic = await usher_traffic(self._socket)
        except TimeoutError:
            return None
        return None if traffic is None or traffic.table < self._published else traffic

    def close(self) -> None:
        """Stop asking; the table stays."""
        for watch in self._watches.values():
            if watch.asking is not None:
                watch.asking.cancel()
        self._writer.shutdown(wait=True)


async def ping(address: str, port: int) -> str | None:
    """Ask a replica whether it is well; None when it is, otherwise what was wrong."""
    try:
        async with asyncio.timeout(PING_S):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(
                    f"GET /ping HTTP/1.1\r\nHost: {address}:{port}\r\nConnection: close\r\n\r\n".encode()
                )
                line = await reader.readline()
            finally:
                writer.close()
    except TimeoutError:
        return f"no answer within {PING_S:g} s"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or "the answer is not HTTP"
    words = line.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        return "the answer is not HTTP"
    return None if words[1] == b"200" else f"the answer was {words[1][:3].decode('latin-1')}"


async def usher_traffic(socket: Path) -> UsherTraffic | None:
    """What the usher has counted; None when it does not answer. Raises OSError where there is none."""
    async with asyncio.timeout(USHER_S):
        with short_path(str(socket)) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=_ANSWER_BYTES)
        try:
            writer.write(b"stats\n")
            with contextlib.suppress(ConnectionResetError, BrokenPipeError, ValueError, msgspec.MsgspecError):
                return msgspec.json.decode(await reader.readline(), type=UsherTraffic)
        finally:
            writer.close()
    return None
