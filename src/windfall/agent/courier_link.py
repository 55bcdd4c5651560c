"""The agent's end of its couriers: one process for each user that jobs run as, and one with the agent's own rights.

Decides which process an attempt's lines go to, and lets one go that has had nothing to do for a while. Must not know
attempts: its user repeats what is open when it hears that a courier is new.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import msgspec

from windfall.agent.companions import Companion, OnReadable
from windfall.agent.courier.messages import Line, Report, decode_reports, encode
from windfall.agent.demotion import Identity, plain_environment
from windfall.agent.launching import agent_environment
from windfall.agent.settings import AgentSettings
from windfall.agent.steward_link import StewardLink

#: How long a courier without an attempt is kept: the next attempt of its user is likely to come soon.
IDLE_S = 60.0


class Couriers:
    """The couriers of one agent. None as a user means the agent's own."""

    def __init__(
        self, settings: AgentSettings, on_readable: OnReadable, on_started: Callable[[int], None]
    ) -> None:
        self._settings = settings
        self._on_readable = on_readable
        self._on_started = on_started
        #: Called with each report and the user whose courier it came from.
        self.on_report: Callable[[Identity | None, Report], None] = lambda _user, _report: None
        #: Called with the user whose courier is new and must be told everything.
        self.on_new: Callable[[Identity | None], None] = lambda _: None
        #: What couriers of other users ask for what needs root.
        self.steward = StewardLink(settings, on_readable, on_started)
        self._companions: dict[Identity | None, Companion] = {}
        self._idle_since: dict[Identity | None, float] = {}

    def running(self, user: Identity | None) -> bool:
        """Whether a user's courier is believed to be there."""
        companion = self._companions.get(user)
        return companion is not None and companion.running

    def send(self, user: Identity | None, line: Line) -> None:
        """Tell a user's courier, if it is there; a new one is started otherwise and asks for everything (`on_new`)."""
        companion = self._companions.get(user)
        if companion is None:
            companion = self._companions[user] = self._new(user)
        self._idle_since.pop(user, None)
        companion.send(encode([line]))

    def rest(self, user: Identity | None) -> None:
        """A user's courier has nothing to do; it is let go if that stays so."""
        if user in self._companions:
            self._idle_since.setdefault(user, time.monotonic())

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        due = [self.steward.next_due, *(companion.next_due for companion in self._companions.values())]
        due += [since + IDLE_S for since in self._idle_since.values()]
        return min((time_ for time_ in due if time_ is not None), default=None)

    def tick(self) -> None:
        """Do what is due for each courier."""
        self.steward.tick()
        now = time.monotonic()
        for user, since in list(self._idle_since.items()):
            if now >= since + IDLE_S:
                del self._idle_since[user]
                self._companions.pop(user).retire()
        for companion in list(self._companions.values()):
            companion.tick()

    def _new(self, user: Identity | None) -> Companion:
        command = [sys.executable, "-P", "-m", "windfall.agent.courier"]
        command.append(msgspec.json.encode(self._settings).decode())
        if user is None:
            name, environment = "the courier", agent_environment
        else:
            command.append(msgspec.json.encode(user).decode())
            name, environment = f"the courier of user {user.uid}", plain_environment
        companion = Companion(name, command, environment, self._on_readable, self._on_started)

        def on_lines(lines: bytes) -> None:
            for report in decode_reports(lines):
                self.on_report(user, report)

        companion.on_lines = on_lines
        companion.on_new = lambda: self.on_new(user)
        return companion
