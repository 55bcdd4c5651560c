"""What a machine says passes plausible.py before the engine takes it, on every way that it can say something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulation.fleets import PlayedReach
from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.errors import AgentError, ProtocolError
from windfall.agent.gpus import GpuDevice
from windfall.agent.reach import Reach
from windfall.engines.agent_link import AgentLink
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.plausible import MOST_NUMBER

INVENTORY = messages.Inventory("box", 1, 4.0, 1024, [], [], "nobody", [], [], machine_id="hosts-1")


class Engine(FleetEngine):
    """The engine, with its own line to a machine that the test speaks for."""

    line: AgentLink

    def _link(self, name: str, reach: Reach) -> AgentLink:
        self.line = super()._link(name, reach)
        return self.line

    def hears(self, message: Any) -> None:
        self.line._on_message(message)

    def meets(self, inventory: messages.Inventory, *results: messages.Result) -> None:
        self.line._on_connected(inventory, list(results))


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = Engine(lambda _: None, AttemptDirectory(tmp_path), 1)
    engine.add("box", PlayedReach(None))  # type: ignore[arg-type]  # the test speaks for it
    return engine


def changed(**fields: Any) -> messages.Inventory:
    import msgspec

    return msgspec.structs.replace(INVENTORY, **fields)


@pytest.mark.parametrize(
    "lie",
    [
        {"memory_mib": MOST_NUMBER + 1},
        {"hostname": "x" * 100_000},
        {"vcpus": -1.0},
        {"machine_id": "../../etc"},
    ],
)
def test_a_description_that_cannot_be_ends_the_connection(engine: Engine, lie: dict[str, Any]):
    with pytest.raises(AgentError):
        engine.meets(changed(**lie))
    assert engine.member("box").machine is None


def test_an_end_that_cannot_be_ends_the_connection(engine: Engine):
    result = messages.Exited("a#1", MOST_NUMBER + 1, None, 1, 2, "process")
    with pytest.raises(ProtocolError):
        engine.meets(INVENTORY, result)


def test_every_later_message_is_checked(engine: Engine):
    engine.meets(INVENTORY)
    assert engine.member("box").machine is not None
    with pytest.raises(ProtocolError):
        engine.hears(messages.Exited("a#1", MOST_NUMBER + 1, None, 1, 2, "process"))
    twin = GpuDevice("GPU-1", "model")
    with pytest.raises(ProtocolError):
        engine.hears(messages.Devices([twin, twin]))
