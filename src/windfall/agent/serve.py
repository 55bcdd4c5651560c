"""The agent's process: one loop over the socket, the signal of ended children, the spawners' results and
a few timers.

Decides the order of one round: read everything, do everything, write the journal once, answer once. Plain
epoll rather than asyncio: it is half the memory and a third of the cost per event. A fault in here ends
the process on purpose: the warden starts it again and recovery.py puts it back together, which is better
tested than any attempt to go on.

    python -m windfall.agent.serve SETTINGS_JSON
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

import msgspec

from windfall.agent.alone import Alone, boot_ms
from windfall.agent.connection import Connection
from windfall.agent.credentials import allow_many_files, become_subreaper, keep_descriptors_to_itself
from windfall.agent.devices.sources import open_source
from windfall.agent.devices.suspects import SuspectEnds
from windfall.agent.devices.watcher import DeviceWatcher
from windfall.agent.errors import AgentError, DirectoryTaken, ProtocolError
from windfall.agent.exits import ExitsFile
from windfall.agent.inside.sessions import Sessions
from windfall.agent.journal import EpochSeen, Journal, read_journal
from windfall.agent.launching import SOCKET_NAME
from windfall.agent.limits import Limits
from windfall.agent.listening import Listener
from windfall.agent.machine import survey
from windfall.agent.messages import (
    ContainerNews,
    Devices,
    Exec,
    Forget,
    Hello,
    Interrupt,
    Ping,
    Provide,
    Rebalance,
    Rejected,
    Shutdown,
    Start,
    Stop,
    ToAgent,
    misfit,
)
from windfall.agent.mirror_messages import LogHave
from windfall.agent.mirroring import Mirror
from windfall.agent.own_directory import OwnDirectory
from windfall.agent.provisions import Provisions
from windfall.agent.recovery import Recovery, boot_id
from windfall.agent.sampling.sampler import Sampler
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import CANNOT_SERVE, say
from windfall.agent.spot_notices import SpotNotices
from windfall.agent.supervisor import Supervisor, now_ms
from windfall.agent.warden import EXITS_NAME, SHUTDOWN_CODE

JOURNAL_NAME = "journal"
_PRESS_STOPS_EVERY_S = 0.1
_ROUND_SPACING_S = 0.003
_NO_WARDEN = "the agent's warden is gone: if the agent dies too, exit codes of running jobs may be lost"


class Agent:
    """The loop and what it holds together."""

    def __init__(self, settings: AgentSettings) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._wake_fd, self._notify_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._on_readable(self._wake_fd, self._drain_wakeups)
        self._shutdown: Shutdown | None = None
        self._press_at: float | None = None
        self._last_round = 0.0
        self._connections: set[Connection] = set()
        self._daemon: Connection | None = None
        self._warden = os.getppid()
        self._directory = OwnDirectory(settings.directory, JOURNAL_NAME)

        memory_path = os.path.join(settings.directory, "devices.json")
        self._devices = DeviceWatcher(open_source(settings.gpus), self._notify, memory_path, boot_id())
        machine = survey(settings, self._devices.start())
        journal_path = os.path.join(settings.directory, JOURNAL_NAME)
        replay = read_journal(journal_path)
        self._epoch = replay.epoch
        self._journal = Journal(journal_path, boot_id())
        self._journal.rewrite(replay.epoch, replay.stories.values())
        self._take_signals()
        become_subreaper()
        self._supervisor = Supervisor(machine, self._journal, self._notify, self._on_readable)
        attempts, orphans = self._supervisor.attempts, self._supervisor.orphans
        self._sessions = Sessions(machine, attempts, orphans, self._on_readable, self._close)
        if machine.credentials is not None:
            machine.credentials.attach(attempts)
        if machine.shares is not None:
            machine.shares.spare = orphans.spare
        self._suspects = SuspectEnds(attempts, self._devices.tells_within_s)
        self._limits = Limits(self._supervisor)
        exits = ExitsFile(os.path.join(settings.directory, EXITS_NAME))
        self._recovery = Recovery(self._supervisor, exits, self._on_readable)
        for attempt in self._recovery.take_over(replay, boot_id()):
            self._limits.watch(attempt)
        self._supervisor.tidy_directories()
        stories = self._supervisor.state.stories
        self._provisions = Provisions(settings, stories)
        self._alone = Alone(settings.directory, stories.values(), self._supervisor.react, now_ms)
        self._mirror = Mirror(settings, attempts)
        self._mirror.tidy(attempt.intended.task_id for attempt in attempts.values())
        self._supervisor.on_forgotten = self._mirror.forget
        self._journal.flush(sync=True)
        self._recovery.empty_exits_when_done()
        path = os.path.join(settings.directory, SOCKET_NAME)
        self._listener = Listener(path, self._on_readable, self._welcome)
        self._sampler = Sampler(settings, attempts, machine.gpus, machine.vcpus, machine.memory_mib)
        self._sampler.start()
        self._spot_notices = SpotNotices(settings.ec2_metadata, self._notify)
        gc.freeze()

    def run(self) -> None:
        """Serve until told to shut down."""
        while not self._round():
            pass
        self._sampler.stop()
        self._journal.flush()
        self._journal.sync()
        self._supervisor.leave()
        if (shares := self._supervisor.machine.shares) is not None:
            shares.rest(lambda token: any(one.token == token for one in self._supervisor.live), at_once=True)
        self._listener.close()

    # --- one round -----------------------------------------------------------------------------------

    def _round(self) -> bool:
        events = self._epoll.poll(self._timeout_s())
        self._gather()
        self._directory.look()
        self._listener.tick()
        for fd, _ in events:
            callback = self._callbacks.get(fd)
            if callback is not None:
                callback()
        supervisor = self._supervisor
        supervisor.couriers.tick()
        supervisor.workers.tick()
        supervisor.take_started()
        supervisor.collect()
        supervisor.kill_leftovers()
        supervisor.forget_removed()
        supervisor.compact(self._epoch)
        supervisor.starts.pump()
        self._limits.tick()
        self._alone.tick()
        self._sessions.tick()
        self._recovery.tick()
        self._see_devices()
        supervisor.outbox += self._spot_notices.take()
        self._press_stops()
        self._journal.flush(sync=self._daemon is None)
        self._report()
        return self._may_end()

    def _gather(self) -> None:
        """Under load, let more happen before it is looked at: ten events cost little more than one.

        A machine that is not busy waits for nothing: only rounds that follow closely upon one another are spaced.
        """
        now = time.monotonic()
        if self._supervisor.crowded and now - self._last_round < _ROUND_SPACING_S:
            time.sleep(_ROUND_SPACING_S - (now - self._last_round))
            now = time.monotonic()
        self._last_round = now

    def _timeout_s(self) -> float:
        supervisor = self._supervisor
        dues = (
            self._limits.next_due(),
            self._alone.next_due,
            self._sessions.next_due,
            self._recovery.next_due,
            supervisor.couriers.next_due,
            supervisor.workers.next_due,
            supervisor.starts.next_due,
            self._listener.next_due,
            self._mirror.next_due,
        )
        due = [time_ for time_ in (*dues, *self._device_dues()) if time_ is not None]
        if self._supervisor.newly_started:
            due.append(0.0)
        if self._supervisor.busy:
            due.append(self._press_at or time.monotonic() + _PRESS_STOPS_EVERY_S)
        if not due:
            return -1.0
        # epoll counts in milliseconds; a little more than asked for avoids a round that finds nothing due yet.
        return max(0.0, min(due) - time.monotonic()) + 0.001

    def _device_dues(self) -> tuple[float | None, ...]:
        shares = self._supervisor.machine.shares
        shares_due = shares.next_due if shares is not None else None
        return (self._devices.next_due, self._suspects.next_due, shares_due)

    def _see_devices(self) -> None:
        """Report GPUs whose health has changed, and stop sharing those that no job shares."""
        supervisor = self._supervisor
        devices = self._devices.take()
        if devices is not None:
            supervisor.machine.gpus[:] = devices
            supervisor.outbox.append(Devices(devices))
        if supervisor.machine.shares is not None:
            supervisor.machine.shares.rest(
                lambda token: token in supervisor.attempts or supervisor.workers.has(token)
            )

    def _press_stops(self) -> None:
        if not self._supervisor.stops:
            self._press_at = None
            return
        now = time.monotonic()
        if self._press_at is None or now >= self._press_at:
            self._supervisor.stops.press()
            self._press_at = now + _PRESS_STOPS_EVERY_S

    def _report(self) -> None:
        outbox = self._suspects.sift(self._supervisor.outbox, all_now=self._shutdown is not None)
        self._supervisor.outbox = []
        outbox = self._mirror.sift(outbox, is_connected=self._daemon is not None)
        if outbox and self._daemon is not None:
            self._daemon.send(outbox)
            self._after_send(self._daemon)

    def _may_end(self) -> bool:
        if self._shutdown is None or not self._supervisor.starts.settled:
            return False
        if self._shutdown.kill and self._supervisor.live:
            return False
        return self._daemon is None or not self._daemon.wants_to_write

    # --- the daemon ----------------------------------------------------------------------------------

    def _welcome(self, sock: socket.socket) -> None:
        connection = Connection(sock)
        self._connections.add(connection)
        self._on_readable(connection.fileno(), lambda: self._on_data(connection))

    def _on_data(self, connection: Connection) -> None:
        connection.flush()
        try:
            for message in connection.receive():
                self._on_message(connection, message)
        except ProtocolError as error:
            say(f"connection closed: {error}")
            connection.closed = True
        self._after_send(connection)

    def _on_message(self, connection: Connection, message: ToAgent) -> None:
        if isinstance(message, Hello):
            self._on_hello(connection, message)
        elif isinstance(message, Ping):
            connection.send([self._alone.answer(message, is_daemons=connection is self._daemon)])
        elif isinstance(message, ContainerNews):
            self._supervisor.containers.on_news(message.token)
        elif isinstance(message, Exec):
            self._sessions.begin(connection, message)
        elif connection is not self._daemon:
            return  # Not greeted, or replaced by a newer daemon: it has no say.
        elif isinstance(message, Start):
            self._provisions.note_start(message)
            self._mirror.note_start(message.token)
            self._supervisor.on_start(message)
            self._alone.watch(self._supervisor.state.stories.get(message.token))
        elif isinstance(message, Stop | Interrupt):
            self._supervisor.react(message)
            self._press_at = None
        elif isinstance(message, Rebalance):
            self._supervisor.on_rebalance(message)
        elif isinstance(message, LogHave):
            self._mirror.on_have(message)
        elif isinstance(message, Provide):
            self._provisions.take(message)
        elif isinstance(message, Forget):
            self._supervisor.react(message)
            self._provisions.forget(message.tokens)
        else:
            self._begin_shutdown(message)

    def _on_hello(self, connection: Connection, hello: Hello) -> None:
        trouble = misfit(hello, "the daemon", f"the agent (pid {os.getpid()})")
        if trouble is not None or hello.epoch < self._epoch:
            old = f"a newer daemon (epoch {self._epoch}) has taken over; epoch {hello.epoch} must end"
            connection.send([Rejected(trouble or old, self._epoch, incompatible=trouble is not None)])
            connection.closed = True
            return
        if hello.epoch > self._epoch:
            self._epoch = hello.epoch
            self._journal.add(EpochSeen(hello.epoch))
            self._journal.flush(sync=True)
        if self._daemon is not None and self._daemon is not connection:
            self._close(self._daemon)
        self._daemon = connection
        self._supervisor.containers.look_at_all()
        self._provisions.begin_connection()
        attempts, results = self._mirror.begin_connection(
            [story.status() for story in self._supervisor.state.stories.values()], self._supervisor.results()
        )
        warnings = [_NO_WARDEN] if os.getppid() != self._warden else []
        machine = self._supervisor.machine
        inventory = machine.inventory(attempts, warnings, self._directory.machine_id, now_ms())
        names = self._provisions.names
        inventory = msgspec.structs.replace(inventory, secrets=names, sent_ms=boot_ms())
        connection.send([inventory, *results, *self._spot_notices.in_force])

    def _after_send(self, connection: Connection) -> None:
        if connection.closed:
            self._close(connection)
            return
        if connection.wants_to_write != connection.polled_for_writing:
            connection.polled_for_writing = connection.wants_to_write
            events = select.EPOLLIN | (select.EPOLLOUT if connection.wants_to_write else 0)
            self._epoll.modify(connection.fileno(), events)

    def _close(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._on_readable(connection.fileno(), None)
        connection.close()
        if connection is self._daemon:
            self._daemon = None
            self._journal.flush()
            self._journal.sync()

    def _begin_shutdown(self, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self._supervisor.on_shutdown(shutdown)
        self._press_at = None

    # --- events --------------------------------------------------------------------------------------

    def _on_readable(self, fd: int, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._epoll.unregister(fd)
            del self._callbacks[fd]
        else:
            self._epoll.register(fd, select.EPOLLIN)
            self._callbacks[fd] = callback

    def _notify(self) -> None:
        try:
            os.write(self._notify_fd, b"\0")
        except BlockingIOError:
            return  # Full of wake-ups: it will wake.

    def _drain_wakeups(self) -> None:
        os.read(self._wake_fd, 1 << 16)

    def _take_signals(self) -> None:
        signal.set_wakeup_fd(self._notify_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._begin_shutdown(Shutdown(kill=False)))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def main(arguments: list[str]) -> int:
    """Run the agent with the settings given as JSON."""
    os.umask(0o077)
    keep_descriptors_to_itself()
    allow_many_files()
    settings = msgspec.json.decode(arguments[0], type=AgentSettings)
    try:
        agent = Agent(settings)
    except (AgentError, OSError) as error:
        say(f"{CANNOT_SERVE}{error}")
        return 1
    try:
        agent.run()
    except DirectoryTaken as error:
        say(f"{error}")
    except AgentError as error:
        say(f"{error}")
        return 1
    return SHUTDOWN_CODE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
