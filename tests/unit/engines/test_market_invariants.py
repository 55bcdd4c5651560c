"""Whatever happens in whatever order, the core is told the truth about instances and attempts, each thing once.

A fake agent runs the attempts: it answers as the real one does, can be away, and repeats what was not forgotten.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.engines.test_simulated_engine import World, spot
from tests.unit.engines.test_translation import a_status, an_inventory
from windfall.agent import messages
from windfall.capacity.machines import Instance, InstanceState
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptLost,
    InstanceLaunchFailed,
    InstanceLost,
    InstanceReady,
    InterruptionNoticed,
)
from windfall.control.instructions import ForgetAttempt, LaunchInstance, TerminateInstance
from windfall.control.ports import Holdings
from windfall.engines.simulated.fleet import InstanceStage
from windfall.jobs.ids import AttemptToken, InstanceId

MARKETS = [
    {"windfall:mtbi-s": "30", "windfall:sudden": "0.7", "windfall:notice-s": "10"},
    {"windfall:interrupt-at": "15 12 40", "windfall:notice-s": "5"},
    {"windfall:capacity": "2", "windfall:mtbi-s": "60", "windfall:notice-s": "20"},
    {"windfall:trace": "TRACE", "windfall:notice-s": "15"},
    {"windfall:trace": "TRACE", "windfall:seed": "3", "windfall:sudden": "0.3"},
]


class MarketMachine(RuleBasedStateMachine):
    """A market, a core that keeps books, and an agent."""

    @initialize(tags=st.sampled_from(MARKETS), counts=st.lists(st.integers(0, 4), min_size=1, max_size=8))
    def begin(self, tags: dict[str, str], counts: list[int]) -> None:
        self.directory = tempfile.TemporaryDirectory()
        root = Path(self.directory.name)
        trace = root / "trace.json"
        trace.write_text(json.dumps({"metadata": {"gap_seconds": 20}, "data": counts}))
        chosen = {key: str(trace) if text == "TRACE" else text for key, text in tags.items()}
        self.world = World(root, spot(chosen), boot_s=3)
        self.serial = 0
        #: The core's books.
        self.instances: dict[str, Instance] = {}
        self.attempts: dict[str, str] = {}
        self.endings: Counter[str] = Counter()
        #: The agent's.
        self.running: set[str] = set()
        self.results: dict[str, messages.Result] = {}
        self.away = True
        self.noticed: set[str] = set()
        #: Killed by a loss without notice: their ends must never be told as their own.
        self.killed: set[str] = set()
        self.fill()

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory.cleanup()

    # The core -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the agent answer and the core read until neither has anything to say."""
        while True:
            told, self.world.link.told[:] = list(self.world.link.told), []
            answers = [] if self.away else [self.answer(message) for message in told]
            for answer in answers:
                if answer is not None:
                    self.world.link.say(answer)
            heard, self.world.said[:] = list(self.world.said), []
            for report in heard:
                self.read(report)
            if not heard and not self.world.link.told:
                return

    def read(self, report: object) -> None:
        if isinstance(report, InstanceReady):
            if report.instance in self.instances:
                self.instances[report.instance].state = InstanceState.READY
        elif isinstance(report, InstanceLaunchFailed):
            failed = self.instances.pop(report.instance)
            assert failed.state is InstanceState.LAUNCHING
        elif isinstance(report, InterruptionNoticed):
            instance = self.instances[report.instance]
            assert report.instance not in self.noticed
            assert report.deadline_at > self.world.now
            self.noticed.add(report.instance)
            instance.state, instance.reclaim_at = InstanceState.TERMINATING, report.deadline_at
        elif isinstance(report, InstanceLost):
            self.lose(report.instance)
        elif isinstance(report, AgentConnected):
            assert report.machine.id in self.instances
            for ended in report.ended:
                assert ended.token not in self.killed
                self.close(ended.token)
        elif isinstance(report, AttemptExited | AttemptLost):
            assert report.token not in self.killed
            self.close(report.token)

    def lose(self, instance: str) -> None:
        if self.instances.pop(instance, None) is None:
            return
        for token in [token for token, place in self.attempts.items() if place == instance]:
            assert token not in self.running, f"{token} runs on though {instance} is gone"
            self.close(token)

    def close(self, token: str) -> None:
        if self.attempts.pop(token, None) is not None:
            self.endings[token] += 1
        self.world.engine.carry_out([ForgetAttempt(AttemptToken(token), None)])

    # The agent ------------------------------------------------------------------------------------------

    def answer(self, message: messages.Message) -> messages.ToDaemon | None:
        if isinstance(message, messages.Start):
            if message.token in self.results:
                return self.results[message.token]
            self.running.add(message.token)
            return messages.Started(message.token, 1, self.world.now, "process")
        if isinstance(message, messages.Stop):
            if message.token in self.running:
                if message.lose and self.attempts.get(message.token) not in self.noticed:
                    self.killed.add(message.token)
                return self.end(message.token, 137)
            return self.results.get(message.token) or messages.Lost(message.token, self.world.now)
        if isinstance(message, messages.Forget):
            for token in message.tokens:
                self.results.pop(token, None)
        return None

    def end(self, token: str, code: int) -> messages.Result:
        self.running.discard(token)
        self.results[token] = messages.Exited(token, code, None, 1, self.world.now, "process")
        return self.results[token]

    # What can happen ------------------------------------------------------------------------------------

    @rule()
    def launch(self) -> None:
        offer = self.world.offer()
        self.serial += 1
        name = InstanceId(f"i-{self.serial}")
        environment = self.world.environment.name
        self.instances[name] = Instance(
            name, environment, offer.type, offer.resources, launched_at=self.world.now
        )
        self.world.engine.carry_out([LaunchInstance(name, environment, offer)])
        self.settle()

    @rule()
    def fill(self) -> None:
        """Most that can go wrong needs instances with attempts on them."""
        if self.away:
            self.agent_connects()
        self.launch()
        self.launch()
        self.time_passes(3)
        for place in [one.id for one in self.instances.values() if one.state is InstanceState.READY]:
            self.start_on(place)

    @precondition(lambda self: any(one.state is InstanceState.READY for one in self.instances.values()))
    @rule(choice=st.randoms(use_true_random=False))
    def start(self, choice) -> None:
        ready = sorted(one.id for one in self.instances.values() if one.state is InstanceState.READY)
        self.start_on(choice.choice(ready))

    def start_on(self, place: str) -> None:
        self.serial += 1
        token = f"job-{self.serial}#1"
        self.attempts[token] = place
        self.world.start_attempt(token, InstanceId(place))
        self.settle()

    @precondition(lambda self: self.running)
    @rule(choice=st.randoms(use_true_random=False))
    def exit(self, choice) -> None:
        result = self.end(choice.choice(sorted(self.running)), 0)
        if not self.away:
            self.world.link.say(result)
        self.settle()

    @rule(seconds=st.sampled_from([0.5, 3, 10, 20, 60]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += round(seconds * 1000)
        self.world.engine.advance(self.world.now)
        self.settle()

    @rule()
    def agent_goes(self) -> None:
        self.away = True

    @precondition(lambda self: not self.away)
    @rule(seconds=st.sampled_from([1, 10, 30]))
    def daemon_is_killed_before_it_hears(self, seconds: float) -> None:
        """The agent did what it was told, and nobody took note."""
        self.world.now += round(seconds * 1000)
        self.world.engine.advance(self.world.now)
        for message in self.world.link.told:
            self.answer(message)
        self.world.said.clear()
        self.world.link.told.clear()
        self.world.now += 1_000
        self.daemon_restarts()

    @precondition(lambda self: self.away)
    @rule()
    def agent_connects(self) -> None:
        self.away = False
        self.world.link.told.clear()
        statuses = [a_status(token, "running", 1) for token in sorted(self.running)]
        statuses += [a_status(token, "exited") for token in sorted(self.results)]
        self.world.link.introduce(an_inventory(*statuses), list(self.results.values()))
        self.settle()
        # What the core asks again of an agent that does not name an attempt: a stop, answered with its loss.
        for token in [token for token in self.attempts if token not in self.running]:
            self.world.link.say(self.results.get(token) or messages.Lost(token, self.world.now))
        self.settle()

    @rule()
    def daemon_restarts(self) -> None:
        self.settle()
        self.world.start()
        self.world.engine.adopt(
            Holdings([self.world.environment], list(self.instances.values()), dict(self.attempts))
        )
        self.away = True

    @precondition(lambda self: self.instances)
    @rule(choice=st.randoms(use_true_random=False))
    def let_go(self, choice) -> None:
        empty = sorted(name for name in self.instances if name not in self.attempts.values())
        if empty:
            gone = choice.choice(empty)
            del self.instances[gone]
            self.world.engine.carry_out([TerminateInstance(InstanceId(gone))])
            self.settle()

    # What must always hold ------------------------------------------------------------------------------

    @invariant()
    def ends_once(self) -> None:
        if hasattr(self, "endings"):
            assert not [token for token, count in self.endings.items() if count > 1]

    @invariant()
    def engine_and_core_agree(self) -> None:
        """What the core believes to be there the engine has, unless its loss waits for an agent that is away."""
        if hasattr(self, "world"):
            fleet = {one.id for one in self.world.engine._fleet}
            assert fleet == set(self.instances)

    @invariant()
    def what_goes_is_gone_while_the_agent_answers(self) -> None:
        if hasattr(self, "world") and not self.away:
            assert not [one.id for one in self.world.engine._fleet if one.stage is InstanceStage.GOING]

    @invariant()
    def capacity_holds(self) -> None:
        if not hasattr(self, "world"):
            return
        market = self.world.engine._offerings.find(self.world.environment.name)
        if market is None:
            return
        self.world.engine.advance(self.world.now)
        self.settle()
        stock = self.world.engine._fleet.stock(self.world.environment.name)
        bound = market.market.capacity("p3.2xlarge", self.world.now)
        assert bound is None or stock.lasting["p3.2xlarge"] <= bound
        cap = market.market.tags.capacity
        assert cap is None or stock.total <= cap


MarketMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_market = MarketMachine.TestCase
