"""What the metadata service of EC2 says about the machine, and what becomes of its silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.metadata_server import ACTION, REBALANCE, MetadataServer
from tests.waiting import wait_until
from windfall.agent.messages import Noticed
from windfall.agent.spot_notices import Metadata, SpotNotices, metadata_address

TERMINATE = '{"action": "terminate", "time": "2026-11-18T08:22:00Z"}'
AT = 1_794_990_120_000

Watch = Callable[..., SpotNotices]


@pytest.fixture
def watch(server: MetadataServer) -> Iterator[Watch]:
    """Begins to watch the server, and ends that after the test."""
    watching: list[SpotNotices] = []

    def begin(notify: Callable[[], None] = lambda: None) -> SpotNotices:
        watching.append(SpotNotices(server.address, notify, every_s=0.02))
        return watching[-1]

    yield begin
    for notices in watching:
        notices.close()


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with MetadataServer() as server:
        yield server


def test_without_notice_there_is_nothing_to_say(server: MetadataServer):
    assert Metadata(server.address).notice() == Noticed()
    assert server.asked == [ACTION, REBALANCE]


def test_an_action_is_a_notice_with_its_time(server: MetadataServer):
    server.says[ACTION] = TERMINATE
    notice = Metadata(server.address).notice()
    assert notice == Noticed(AT, "spot interruption: EC2 will terminate it")


def test_a_recommendation_is_not_a_deadline(server: MetadataServer):
    server.says[REBALANCE] = '{"noticeTime": "2026-11-18T08:20:00Z"}'
    assert Metadata(server.address).notice() == Noticed(rebalance=True)


@pytest.mark.parametrize(
    "nonsense", ["", "terminate", "[]", "{}", '{"action": "stop", "time": "soon"}', '{"action": "stop", "time": 5}',
                 '{"action": "stop", "time": "2026-11-18T08:22:00"}', "[" * 60_000]
)  # fmt: skip
def test_nonsense_is_no_notice(server: MetadataServer, watch: Watch, nonsense: str):
    server.says[ACTION] = nonsense
    watching = watch()
    wait_until(lambda: server.asked.count(ACTION) >= 3, "three questions")
    assert watching.in_force == []
    server.says[ACTION] = TERMINATE
    wait_until(lambda: watching.in_force != [], "the notice, by the same thread")


def test_a_service_without_sessions_is_not_believed(server: MetadataServer):
    server.gives_tokens = False
    server.says[ACTION] = TERMINATE
    with pytest.raises(ValueError, match="no session token: status 403"):
        Metadata(server.address).notice()


def test_a_notice_wakes_the_loop_and_is_taken_once(server: MetadataServer, watch: Watch):
    woken = threading.Event()
    watching = watch(woken.set)
    assert watching.take() == []
    server.says[ACTION] = TERMINATE
    assert woken.wait(30)
    assert watching.take() == watching.in_force == [Noticed(AT, "spot interruption: EC2 will terminate it")]
    assert watching.take() == []


def test_silence_takes_nothing_back_and_a_new_answer_does(server: MetadataServer, watch: Watch):
    woken = threading.Event()
    server.says[ACTION] = TERMINATE
    watching = watch(woken.set)
    assert woken.wait(30)
    server.says[ACTION] = "nonsense"
    before = len(server.asked)
    wait_until(lambda: len(server.asked) >= before + 3, "three questions")
    assert watching.in_force != []
    woken.clear()
    del server.says[ACTION]
    assert woken.wait(30)
    assert (watching.in_force, watching.take()[-1]) == ([], Noticed())


def test_a_machine_elsewhere_is_not_watched():
    assert metadata_address("off") is None
    assert metadata_address("http://127.0.0.1:1338") == "http://127.0.0.1:1338"
    assert SpotNotices("off", lambda: None).in_force == []
