"""From jobs in a real store to the lines that a person reads: the daemon's answer and the command line fit together."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from tests.unit.accounting.builders import a_job, a_mark, an_attempt, an_interrupted, at, progress
from windfall.accounting.prices import Rates
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.cli.cost import cost
from windfall.control.changes import Changes
from windfall.daemon.costs import CostQueries
from windfall.store.opening import open_store

ID = "0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11"
PRICED = {"instance_type": "p3.2xlarge", "usd_hour": 1.25, "on_demand_usd_hour": 3.06}


class Reader:
    def __init__(self, store):
        self.store = store

    async def read(self, question):
        return question(self.store)


@pytest.fixture
def asking(daemon, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    first = an_interrupted(
        placed=40,
        started=45,
        stop=1700,
        exited=1703,
        stopped=1705,
        checkpoint=a_mark(state=1701, committed=1702.5, step=90),
        progress=progress(90, first_step=60, stall_s=2),
        **PRICED,
    )
    second = an_interrupted(2, placed=1800, started=1806, stopped=2400, restored=first.checkpoint, **PRICED)
    third = an_attempt(
        3,
        placed=2430,
        started=2436,
        stopped=4000,
        exit_code=0,
        restored=first.checkpoint,
        **PRICED | {"usd_hour": 3.06},
    )
    store = open_store(f"sqlite:///{tmp_path / 'windfall.db'}")
    store.commit(Changes(jobs={ID: a_job(first, second, third, stopped=4000, id=ID)}))
    costs = CostQueries(Reader(store), Rates(), lambda: at(5000))
    caller = Caller("key", Role.READ, "default")

    def answer(params):
        call = Call("windfall", "Cost", params, caller, "us-east-1", "request", 0)
        return asyncio.run(costs.cost(call))

    daemon.answers["Cost"] = answer

    def run(*arguments):
        return CliRunner().invoke(cost, arguments, catch_exceptions=False).stdout.splitlines()

    yield run
    store.close()


def test_the_ledger_of_a_job_that_was_interrupted_twice(asking):
    name, titles, first, second, third, *rest = asking(ID)
    assert name == f"train {ID} SUCCEEDED"
    assert titles.split()[:2] == ["TRY", "WHERE"]
    assert first.startswith("1    p3.2xlarge spot, interrupted  28 min 25 s")
    assert second.split()[4:10] == ["11", "min", "35", "s", "9", "min"]
    assert "▒" not in first
    assert "▒" in second
    assert "█" not in second
    assert third.startswith("3    p3.2xlarge on-demand")
    shares = [float(line.split("%")[0].split()[-1]) for line in rest[:6]]
    assert sum(shares) == pytest.approx(100, abs=0.31)
    assert "wall clock  1 h 6 min" in rest


def test_the_same_job_in_a_sum(asking):
    titles, row, total = asking("--since", "all", "--by", "day")
    assert titles.split()[:2] == ["DAY", "JOBS"]
    assert row.split()[0] == "2023-11-14"
    assert row.split()[1:] == total.split()[1:]
