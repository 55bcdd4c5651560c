"""Worlds from seeds, the promises in them, and faulty parts that must be found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.agents import Agent
from tests.simulation.daemon import Answer, Daemon
from tests.simulation.store import BrokenPromise, FakeStore
from tests.simulation.world import Parts, run
from windfall.agent.messages import Start
from windfall.control.changes import Changes
from windfall.control.instructions import ForgetAttempt, StartAttempt
from windfall.control.round import Round
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job

ROOT = Path(__file__).resolve().parents[2]
QUICK, CHUNK = 150, 25


@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_every_promise_is_kept(first):
    outcomes = [run(seed) for seed in range(first, first + CHUNK)]
    assert sum(outcome.jobs for outcome in outcomes) > CHUNK
    assert sum(outcome.attempts for outcome in outcomes) > CHUNK


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 250))
def test_every_promise_is_kept_in_thousands_of_worlds(first):
    assert sum(run(seed).attempts for seed in range(first, first + 250)) > 250


def test_a_seed_gives_the_same_world_again():
    first: list[str] = []
    second: list[str] = []
    assert run(7, tell=first.append) == run(7, tell=second.append)
    assert first == second
    assert len(first) > 50


def test_the_command_replays_a_seed_and_sums_many_up():
    def told(*arguments: str) -> str:
        command = [sys.executable, "-m", "tests.simulation", *arguments]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert "daemon starts" in told("--seed", "3", "--steps", "5")
    assert "4 of 4 worlds kept every promise" in told("--runs", "4", "--steps", "5", "--processes", "1")


class LyingStore(FakeStore):
    """Says that a round is durable when it is not yet: a crash takes the last one back."""

    def __init__(self) -> None:
        super().__init__()
        self.unwritten: dict[JobId, Job | None] = {}

    def commit(self, changes: Changes) -> list[str]:
        self.unwritten = {job_id: self.jobs.get(job_id) for job_id in changes.jobs}
        return super().commit(changes)

    def crash(self) -> None:
        """The last round was only in a cache."""
        for job_id, before in self.unwritten.items():
            if before is None:
                self.jobs.pop(job_id, None)
            else:
                self.jobs[job_id] = before
        self.unwritten = {}


class ForgetfulStore(FakeStore):
    """Loses every seventh tick that it is given."""

    def commit(self, changes: Changes) -> list[str]:
        if changes.ticks and (self.commits + len(self.ticks)) % 7 == 0:
            changes.ticks.clear()
        return super().commit(changes)


class NarrowStore(FakeStore):
    """Does not keep how service jobs end."""

    def commit(self, changes: Changes) -> list[str]:
        for job_id in [job.id for job in changes.service_jobs.values() if job.finished]:
            del changes.service_jobs[job_id]
        return super().commit(changes)


class ShortStore(FakeStore):
    """Does not keep how the tries of jobs on several hosts ended."""

    def commit(self, changes: Changes) -> list[str]:
        for job in changes.jobs.values():
            job.gang_ends = []
        return super().commit(changes)


class HastyDaemon(Daemon):
    """Acts before the commit."""

    def on_reacted(self, replies: list[tuple[Answer, Any]], round_: Round) -> None:
        self.world.engine.carry_out(round_.instructions)
        round_.instructions.clear()


class HastyClerk(Daemon):
    """Answers before the commit."""

    def on_reacted(self, replies: list[tuple[Answer, Any]], round_: Round) -> None:
        for answer, reply in replies:
            answer(reply)
        replies.clear()


class ForgetfulAgent(Agent):
    """Does not look into its journal before it starts a process."""

    def on_start(self, instruction: StartAttempt, start: Start) -> None:
        story = self.journal.get(start.token)
        if story is not None and story.live and story.began_at is not None:
            self.world.process_started(self, instruction)
        super().on_start(instruction, start)


class DeafAgent(Agent):
    """Never hears that it may forget."""

    def on_instruction(self, instruction: Any) -> None:
        if not isinstance(instruction, ForgetAttempt):
            super().on_instruction(instruction)


class CarelessAgent(Agent):
    """Gives no notice to its processes."""

    def give_notice(self, token: str) -> None:
        pass


class WastefulAgent(Agent):
    """Begins every attempt as if it were the first."""

    def on_start(self, instruction: StartAttempt, start: Start) -> None:
        super().on_start(replace(instruction, fence=1) if start.staging is not None else instruction, start)


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (
            Parts(store=LyingStore),
            "acknowledged and is lost|not know how it ended|second|on .* while .* runs|ended: .*service job|KeyError",
        ),
        (
            Parts(daemon=HastyDaemon),
            "starts on .* while|second time|does not know how it ended|said to run and never|KeyError",
        ),
        (
            Parts(store=ForgetfulStore),
            "was due at .* and has ticks for|after a restart ticks would be|a tick that was closed",
        ),
        (Parts(store=NarrowStore), "after a restart service_jobs would be|have not ended: .*service job"),
        (Parts(store=ShortStore), "memory has .*gang_ends=.GangEnd"),
        (Parts(daemon=HastyClerk), "was acknowledged and is lost"),
        (Parts(agent=ForgetfulAgent), "starts on .* while .* runs"),
        (Parts(agent=DeafAgent), "was never told to forget"),
        (Parts(agent=CarelessAgent), "was told to stop at .* and still runs"),
        (Parts(agent=WastefulAgent), "has fence 1, and .* was there before"),
    ],
    ids=[
        "lying store",
        "acts before the commit",
        "loses ticks",
        "loses ends of service jobs",
        "loses ends of tries",
        "answers before the commit",
        "starts twice",
        "never forgets",
        "gives no notice",
        "has no fence",
    ],
)
def test_a_faulty_part_is_found_and_its_seed_named(parts, found):
    broken = first_broken(parts)
    assert broken is not None, "no world noticed"
    seed, text = broken
    assert f"make sim SEED={seed}" in text
    with pytest.raises(BrokenPromise, match=found):
        run(seed, parts=parts)


def first_broken(parts: Parts) -> tuple[int, str] | None:
    """The first world in which a faulty part is noticed."""
    for seed in range(150):
        try:
            run(seed, parts=parts)
        except BrokenPromise as broken:
            return seed, str(broken)
    return None
