"""Starts the feeder of an attempt: it begins as root, to load its code, and gives that up before it does anything.

The courier decides what it feeds, because it does that with the rights of the job's user; the agent decides which
attempt it is for, and who that user is. Must not know pipes.
"""

from __future__ import annotations

import msgspec

from windfall.agent.courier.feeder import Apart, Order, Told, spawn_feeder
from windfall.agent.courier.porters import porter_mark
from windfall.agent.demotion import plain_environment
from windfall.agent.settings import AgentSettings
from windfall.agent.steward.messages import Admit


def start_feeder(settings: AgentSettings, admit: Admit, content: bytes | bytearray) -> None:
    """Start a feeder for an attempt; DecodeError where its order cannot be read."""
    order = msgspec.json.decode(content, type=Order)
    # It needs no right but that of writing into pipes of its own.
    user = msgspec.structs.replace(admit.user, reads_all=False)
    apart = Apart(user, settings.directory, settings.attempts_directory, admit.token, admit.secret)
    told = Told(msgspec.structs.replace(order, owner=None, storage=admit.storage), apart)
    spawn_feeder(told, {**plain_environment(), **porter_mark(admit.token, settings.agent_id)})
