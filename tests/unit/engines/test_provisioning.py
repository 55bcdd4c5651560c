"""A machine has what its attempts need before they start, and no secret for a name that only the machine says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from windfall.agent.messages import Forget, Inventory, Message, Ping, Provide, Start
from windfall.agent.object_access import session_name
from windfall.engines.provisioning import Provisioner, secrets_in
from windfall.jobs.containers import Secret
from windfall.jobs.storage import Grant, StorageAccess


def a_start(token: str, *secrets: str) -> Start:
    named = tuple(Secret(name.upper(), name) for name in secrets)
    return Start(token, token, ["true"], {}, None, "", 1.0, 128, [], secrets=named)


def an_inventory(*secrets: str) -> Inventory:
    return Inventory("host", 1, 1.0, 1, [], [], "nobody", [], [], secrets=list(secrets))


class Daemon:
    """The secrets and the storage of a daemon, and one machine of it."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.objects: dict[str, str] = {}
        self.machine = Provisioner(self.secrets.get, lambda: self.objects)
        self.machine.at_connection(an_inventory())

    def sent(self, *messages: Message) -> list[Message]:
        return self.machine.accompanied(messages)


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def test_a_secret_goes_before_the_start_that_names_it_and_only_once(daemon: Daemon):
    daemon.secrets["one"] = "1"
    first, second = a_start("a#1", "one"), a_start("b#1", "one")
    assert daemon.sent(Ping(), first) == [Ping(), Provide(None, {"one": "1"}), first]
    assert daemon.sent(second) == [second]


def test_a_changed_secret_is_sent_for_the_next_start(daemon: Daemon):
    daemon.secrets["one"] = "1"
    daemon.sent(a_start("a#1", "one"))
    daemon.secrets["one"] = "2"
    assert daemon.sent(a_start("b#1", "one"))[0] == Provide(None, {"one": "2"})


def test_a_removed_secret_is_withdrawn_from_the_machines_that_have_it(daemon: Daemon):
    daemon.secrets["one"] = "1"
    daemon.sent(a_start("a#1", "one"))
    assert daemon.machine.renewed() == []
    del daemon.secrets["one"]
    assert daemon.machine.renewed() == [Provide(withdrawn=["one"])]
    assert daemon.machine.renewed() == []


def test_what_the_agent_has_removed_with_its_last_attempt_is_sent_again(daemon: Daemon):
    daemon.secrets["one"] = "1"
    daemon.sent(a_start("a#1", "one"), a_start("b#1", "one"))
    daemon.sent(Forget(["a#1"]))
    assert len(daemon.sent(a_start("c#1", "one"))) == 1
    assert daemon.sent(Forget(["b#1", "c#1"]), a_start("d#1", "one"))[1] == Provide(None, {"one": "1"})


def test_a_connection_begins_with_storage_and_with_what_attempts_there_may_still_need(daemon: Daemon):
    daemon.objects["AWS_REGION"] = "x"
    daemon.secrets["one"] = "1"
    daemon.sent(a_start("a#1", "one"))
    [provide] = daemon.machine.at_connection(an_inventory("one"))
    assert provide == Provide({"AWS_REGION": "x"}, {"one": "1"})
    daemon.objects["AWS_REGION"] = "y"
    assert daemon.machine.renewed() == [Provide({"AWS_REGION": "y"})]


def test_a_machine_gets_no_secret_by_saying_its_name_and_loses_those_that_are_gone(daemon: Daemon):
    daemon.secrets |= {"one": "1", "other/two": "2"}
    [provide] = daemon.machine.at_connection(an_inventory("one", "other/two", "old"))
    assert provide == Provide({}, {}, ["old"])


def test_a_secret_that_cannot_be_read_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "one").symlink_to("/etc/hostname")
    (tmp_path / "two").write_text("2")
    machine = Provisioner(secrets_in(tmp_path), dict)
    machine.at_connection(an_inventory())
    [provide, _] = machine.accompanied([a_start("a#1", "one", "two", "three")])
    assert provide == Provide(None, {"two": "2"})
    assert "secret one cannot be read (OSError)" in caplog.text


class Sessions:
    """Sessions that come when a test says so."""

    def __init__(self) -> None:
        self.contents: dict[StorageAccess, str] = {}

    def value(self, access: StorageAccess) -> str | None:
        return self.contents.get(access)

    def listen(self, name: str, on_news: Callable[[], None]) -> None:
        """Nobody waits here."""


RED = StorageAccess((Grant("s3://b/tenants/red", write=True),), for_programs=True)


def a_storing_start(token: str, access: StorageAccess = RED) -> Start:
    return msgspec.structs.replace(a_start(token), storage=access)


def test_a_session_goes_before_its_start_or_follows_it_and_is_renewed():
    sessions = Sessions()
    machine = Provisioner(lambda _: None, dict, sessions)
    machine.at_connection(an_inventory())
    start = a_storing_start("a#1")
    assert machine.accompanied([start]) == [start], "nothing waits for it"
    assert machine.renewed() == []
    sessions.contents[RED] = "first"
    assert machine.renewed() == [Provide(None, {session_name(RED): "first"})]
    assert machine.accompanied([a_storing_start("b#1")]) == [a_storing_start("b#1")]
    sessions.contents[RED] = "second"
    assert machine.renewed() == [Provide(None, {session_name(RED): "second"})]
    del sessions.contents[RED]
    assert machine.renewed() == [], "the one that is there still opens storage"
    machine.accompanied([Forget(["a#1", "b#1"])])
    sessions.contents[RED] = "third"
    assert machine.renewed() == [], "no attempt needs it"


def test_a_machine_gets_no_session_because_it_names_one():
    sessions = Sessions()
    sessions.contents[RED] = "theirs"
    machine = Provisioner(lambda _: None, dict, sessions)
    assert machine.at_connection(an_inventory(session_name(RED))) == [Provide({})]
    without = a_start("a#1")
    assert machine.accompanied([without]) == [without]
    machine.expect("b#1", RED)
    assert machine.renewed() == [Provide(None, {session_name(RED): "theirs"})]


def test_sessions_differ_by_what_they_open_and_nothing_else():
    other = StorageAccess((Grant("s3://b/tenants/blue", write=True),))
    everything, nothing = StorageAccess(None), StorageAccess(())
    assert len({session_name(access) for access in (RED, other, everything, nothing)}) == 4
    assert session_name(RED) == session_name(StorageAccess(RED.grants, "file:///buckets"))
    start = a_storing_start("a#1", StorageAccess((), for_programs=True))
    assert Provisioner(lambda _: None, lambda: None, Sessions()).accompanied([start]) == [start]
