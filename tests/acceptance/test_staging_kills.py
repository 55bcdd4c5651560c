"""A counter that is interrupted again and again while agent and courier are killed at random: no step is lost."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_agent import House, launched, public_python
from tests.acceptance.test_staging import FENCE, courier_of, in_seconds, kept
from tests.waiting import wait_until
from windfall.agent.messages import Interrupt

COUNTER = """
import os, signal, sys, time
path = os.environ["WINDFALL_CHECKPOINT_DIR"] + "/step"
step = int(open(path).read()) if os.path.exists(path) else 0
print("began", step, flush=True)
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
while not stopping:
    time.sleep(0.01)
    step += 1
    if step % 20 == 0 or stopping:
        with open(path + ".tmp", "w") as file:
            file.write(str(step))
        os.replace(path + ".tmp", path)
with open(path + ".tmp", "w") as file:
    file.write(str(step))
os.replace(path + ".tmp", path)
print("ended", step, flush=True)
sys.exit(143)
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "house") as built:
        yield built


def numbers(house: House, token: str, word: str) -> list[int]:
    path = house.logs / f"{token}.log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(word)]


class Chaos:
    """Kills one of the two processes, and connects again when it was the agent."""

    def __init__(self, house: House, seed: int) -> None:
        self._house = house
        self.random = random.Random(seed)
        self.daemon = house.daemon()

    def strike(self) -> None:
        agent = self.daemon.inventory.agent_pid
        courier = courier_of(agent)
        if courier is not None and self.random.random() < 0.5:
            os.kill(courier, signal.SIGKILL)
        elif self.random.random() < 0.7:
            os.kill(agent, signal.SIGKILL)
            self.daemon.close()
            self.daemon = self._house.daemon()


@pytest.mark.parametrize("seed", [1, 2])
def test_no_step_is_lost_whoever_is_killed_when(house: House, seed: int):
    chaos = Chaos(house, seed)
    last = 0
    for round_ in range(5):
        token = f"round{round_}"
        start = house.start(token, public_python(), "-c", COUNTER, staging=kept(house), fence=FENCE + round_)
        chaos.daemon.send(start)
        if chaos.random.random() < 0.5:
            chaos.strike()
            if token not in {status.token for status in chaos.daemon.inventory.attempts}:
                chaos.daemon.send(start)
        wait_until(lambda token=token: numbers(house, token, "began"), "it runs")
        assert numbers(house, token, "began") == [last], (
            f"seed {seed}, {token}: steps were lost or done twice"
        )
        if chaos.random.random() < 0.7:
            chaos.strike()
        chaos.daemon.send(Interrupt(token, in_seconds(60), "chaos"))
        wait_until(lambda token=token: numbers(house, token, "ended"), "it has saved")
        if chaos.random.random() < 0.7:
            chaos.strike()
        result = chaos.daemon.exited(token)
        assert result.checkpoint is not None
        (last,) = numbers(house, token, "ended")
