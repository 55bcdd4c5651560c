"""The lease, the fence and forwarded commands, over a real PostgreSQL, with two stores for two daemons."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from tests.conformance.store_builders import a_job, a_round
from tests.waiting import wait_until
from windfall.control.changes import Changes
from windfall.control.events import CancelJob, SubmitJob
from windfall.jobs.errors import NotFound, Rejected
from windfall.jobs.ids import JobId, QueueName
from windfall.store.coordination import ForwardedCommand, Presence
from windfall.store.errors import CommitFailed, Superseded
from windfall.store.forwarded_commands import encoded_reply
from windfall.store.postgres.leadership import LEADERS_PER_LETTER

pytestmark = pytest.mark.parametrize("place", ["postgres"], indirect=True)

SHORT_S, LONG_S = 0.3, 60.0


def a_daemon(place, name: str, lease_s: float = LONG_S):
    store = place.open()
    store.coordination.leadership.join(Presence(name, f"http://{name}", 1), lease_s)
    return store


def take(store, at_least: int = 0) -> int | None:
    return store.coordination.leadership.take(at_least)


def take_when_over(store) -> int:
    epochs: list[int] = []
    wait_until(lambda: epochs.append(take(store)) or epochs[-1] is not None, "the lease to end")
    return epochs[-1]


def test_only_the_one_with_the_lease_can_commit(place):
    one, other = a_daemon(place, "one"), a_daemon(place, "other")
    with pytest.raises(Superseded):
        one.commit(a_round(a_job()))
    assert take(one) is not None
    assert take(other) is None
    job = a_job()
    one.commit(a_round(job))
    with pytest.raises(Superseded):
        other.commit(a_round(a_job()))
    assert other.load().jobs == [job]


def test_a_lease_that_is_over_is_taken_and_its_holder_writes_nothing_any_more(place):
    one, other = a_daemon(place, "one", SHORT_S), a_daemon(place, "other")
    first = take(one)
    one.coordination.leadership.confirm()
    assert one.coordination.leadership.is_sure
    second = take_when_over(other)
    assert second > first
    assert not one.coordination.leadership.is_sure
    with pytest.raises(Superseded) as superseded:
        one.commit(a_round(a_job()))
    assert not superseded.value.committed
    with pytest.raises(Superseded):
        one.coordination.leadership.confirm()
    one.coordination.leadership.release()
    lead = one.coordination.leadership.look()
    assert (lead.holder, lead.address, lead.is_free) == ("other", "http://other", False)
    assert one.load().jobs == []


def test_a_lease_that_is_renewed_is_not_taken_and_one_given_back_or_of_the_dead_is(place):
    one, other = a_daemon(place, "one", SHORT_S), a_daemon(place, "other")
    take(one)
    ends = time.monotonic() + 3 * SHORT_S
    while time.monotonic() < ends:
        one.coordination.leadership.confirm()
        assert take(other) is None
    assert other.coordination.leadership.take(0, gone="somebody") is None
    assert other.coordination.leadership.take(0, gone="one") is not None, "who has ended is not waited for"
    other.coordination.leadership.release()
    epoch = take(other, at_least=10**15)
    assert epoch == 10**15
    other.coordination.leadership.release()
    assert take(one) > epoch


def test_a_leader_that_sleeps_in_the_middle_of_a_commit_blocks_nobody(place):
    one, other = a_daemon(place, "one", SHORT_S), a_daemon(place, "other")
    take(one)
    asleep, awake, ended = threading.Event(), threading.Event(), []

    def nap(session):
        session.rows("INSERT INTO images (pattern, record) VALUES ('x', '{}')")
        asleep.set()
        assert awake.wait(30)
        session.rows("SELECT 1")

    def write():
        try:
            one._database.write(nap)
        except CommitFailed as error:
            ended.append(error)

    sleeper = threading.Thread(target=write)
    sleeper.start()
    assert asleep.wait(30)
    take_when_over(other)
    job = a_job()
    other.commit(a_round(job))
    awake.set()
    sleeper.join(30)
    assert len(ended) == 1
    with pytest.raises(Superseded) as superseded:
        one.commit(a_round(a_job()))
    assert not superseded.value.committed
    assert (other.load().jobs, other.images()) == ([job], [])


def test_a_former_leader_learns_whether_the_round_was_written_that_nobody_acknowledged(place):
    one, other = a_daemon(place, "one"), a_daemon(place, "other")
    take(one)
    one.commit(a_round(a_job()))

    def lost_on_the_way_back(session):
        session.rows("COMMIT")
        raise psycopg.OperationalError("the line went dead")

    with pytest.raises(CommitFailed):
        one._database.write(lost_on_the_way_back)
    one._database._drop()
    other._database.read(lambda session: None)
    place.server.execute(f"UPDATE {schema(place)}.leadership SET renewed_at = '-infinity'")
    assert take(other) is not None
    with pytest.raises(Superseded) as superseded:
        one.commit(a_round(a_job()))
    assert superseded.value.committed


def schema(place) -> str:
    return place.url.rpartition("search_path%3D")[2]


def test_all_daemons_are_seen(place):
    one, other = a_daemon(place, "one"), a_daemon(place, "other")
    take(one)
    for store in (one, other):
        store.coordination.leadership.look()
    listed = {daemon.name: leads for daemon, leads in one.coordination.leadership.daemons()}
    assert listed == {"one": True, "other": False}
    other.coordination.leadership.leave()
    assert [daemon.name for daemon, _ in one.coordination.leadership.daemons()] == ["one"]


SUBMIT = SubmitJob(JobId("j"), "name", QueueName("q"), "definition", tags={"a": "b"})


def answered(letter_id: str, reply: object) -> Changes:
    changes = Changes()
    changes.answers[letter_id] = encoded_reply(reply)
    return changes


def test_a_letter_is_answered_in_the_commit_of_what_it_changed(place):
    leader, follower = a_daemon(place, "leader"), a_daemon(place, "follower")
    take(leader)
    command = ForwardedCommand("l-1", SUBMIT)
    follower.coordination.inbox.send(command)
    follower.coordination.inbox.send(command)
    assert leader.coordination.inbox.commands() == [command]
    assert follower.coordination.inbox.replies(["l-1"]) == {}
    job = a_job()
    changes = a_round(job)
    changes.answers["l-1"] = encoded_reply(job)
    leader.commit(changes)
    assert leader.coordination.inbox.commands() == []
    assert follower.coordination.inbox.replies(["l-1", "l-2"]) == {"l-1": job}
    follower.coordination.inbox.send(command)
    assert leader.coordination.inbox.commands() == [], "what is done is not asked again"


def test_a_refusal_is_the_same_error_for_a_follower(place):
    leader, follower = a_daemon(place, "leader"), a_daemon(place, "follower")
    take(leader)
    follower.coordination.inbox.send(ForwardedCommand("l", CancelJob(JobId("x"), "no")))
    leader.commit(answered("l", NotFound("there is no x")))
    refusal = follower.coordination.inbox.replies(["l"])["l"]
    assert (type(refusal), str(refusal)) == (NotFound, "there is no x")


def test_a_superseded_leader_answers_nobody(place):
    leader, other = a_daemon(place, "leader", SHORT_S), a_daemon(place, "other")
    take(leader)
    other.coordination.inbox.send(ForwardedCommand("l", SUBMIT))
    take_when_over(other)
    with pytest.raises(Superseded):
        leader.commit(answered("l", None))
    assert [command.id for command in other.coordination.inbox.commands()] == ["l"]


def test_a_letter_of_another_version_is_refused_and_one_that_ends_every_leader_is_given_up(place):
    store = a_daemon(place, "one")
    place.server.execute(
        f"INSERT INTO {schema(place)}.inbox (id, command, body) VALUES ('old', 'Fly', '{{}}')"
    )
    assert store.coordination.inbox.commands() == []
    assert "Fly" in str(store.coordination.inbox.replies(["old"])["old"])
    store.coordination.inbox.send(ForwardedCommand("deadly", SUBMIT))
    for _ in range(LEADERS_PER_LETTER):
        take(store)
        assert [command.id for command in store.coordination.inbox.commands()] == ["deadly"]
        store.coordination.leadership.release()
    take(store)
    assert store.coordination.inbox.commands() == []
    assert isinstance(store.coordination.inbox.replies(["deadly"])["deadly"], Rejected)


def test_news_are_told(place):
    leader, follower = a_daemon(place, "leader"), a_daemon(place, "follower")
    heard: list[str] = []
    ended = threading.Event()
    listener = threading.Thread(target=leader.coordination.inbox.listen, args=(heard.append, ended.is_set))
    listener.start()
    try:
        wait_until(lambda: heard, "the listener to be there")
        follower.coordination.leadership.take(0)
        wait_until(lambda: "leadership" in heard, "word of a new leader")
        heard.clear()
        follower.coordination.inbox.send(ForwardedCommand("l", SUBMIT))
        wait_until(lambda: heard, "news of a command")
        place.server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN windfall%'"
        )
        heard.clear()
        wait_until(lambda: heard, "word after a new connection")
    finally:
        ended.set()
        listener.join(30)
