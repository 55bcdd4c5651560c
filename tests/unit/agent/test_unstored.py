"""What is not stored yet outlives its agent."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.waiting import wait_until
from windfall.agent.courier.messages import Errand, Store
from windfall.agent.demotion import Identity
from windfall.agent.places import Places
from windfall.agent.unstored import Unstored
from windfall.jobs.staging import Output, Staging
from windfall.jobs.storage import StorageAccess

SOMEBODY = Identity(65534, 65534, ())
MODEL = Output("/opt/ml/model", "s3://b/model.tar.gz")


def an_order(root: Path) -> Store:
    places = Places(str(root), Staging(outputs=(MODEL,)), sandboxed=True)
    return Store(Errand("t#1", places, str(root), 7, StorageAccess()), (MODEL,))


def test_it_is_asked_for_until_it_is_stored_whichever_agent_that_is(tmp_path):
    left = tmp_path / "task.ml"
    (left / "model").mkdir(parents=True)
    told: list[object] = []
    outputs = Unstored(str(tmp_path / "agent"), lambda *line: told.append(line))
    order = an_order(left)
    outputs.keep(order, [str(left)], SOMEBODY)
    assert told == [(SOMEBODY, order)]
    assert outputs.directories == {str(left)}
    again: list[object] = []
    later = Unstored(str(tmp_path / "agent"), lambda *line: again.append(line))
    later.ask_of(None)
    assert again == []
    later.ask_of(SOMEBODY)
    later.ask()
    assert again == [(SOMEBODY, order)] * 2
    assert later.has_for(SOMEBODY)
    assert not later.has_for(None)
    assert later.directories == {str(left)}
    assert not later.stored("t#1", None), "a courier of another user is not believed"
    assert later.stored("t#1", SOMEBODY)
    wait_until(lambda: not left.exists(), "the directory is removed")
    assert later.directories == set()
    assert Unstored(str(tmp_path / "agent"), lambda *_line: None).directories == set()


def test_a_record_that_cannot_be_read_harms_nobody(tmp_path):
    outputs = Unstored(str(tmp_path / "agent"), lambda *_line: None)
    outputs.keep(an_order(tmp_path / "x"), [], None)
    for path in (tmp_path / "agent" / "unstored").iterdir():
        path.write_text("half of")
    assert Unstored(str(tmp_path / "agent"), lambda *_line: None).directories == set()


def test_the_secret_of_a_courier_is_not_written_down(tmp_path):
    order = an_order(tmp_path / "x")
    secret = "nobody else's"
    order = Store(msgspec.structs.replace(order.errand, secret=secret), order.outputs)
    Unstored(str(tmp_path / "agent"), lambda *_line: None).keep(order, [], SOMEBODY)
    (record,) = (tmp_path / "agent" / "unstored").iterdir()
    assert secret not in record.read_text()
