"""How far behind the store is, and when that is an alarm."""

from __future__ import annotations

from windfall.agent.sync.lag import Lag


def test_lag_counts_from_the_oldest_change():
    lag = Lag("s3://b/p")
    assert lag.seconds(5.0) == 0.0
    lag.differ({"a"}, 10.0)
    lag.differ({"a", "b"}, 14.0)
    assert (lag.seconds(16.0), lag.pending) == (6.0, 2)
    lag.differ({"b"}, 17.0)
    assert lag.seconds(18.0) == 8.0, "nothing was stored since then, though what differs is another file now"
    lag.committed(set(), 18.0)
    assert (lag.seconds(19.0), lag.pending) == (0.0, 0)


def test_half_a_minute_is_an_alarm_that_says_how_much_waits():
    lag = Lag("s3://b/p")
    lag.differ({"a"}, 0.0)
    assert lag.alarm(29.0) is None
    assert lag.alarm(31.0) == "checkpoints in s3://b/p are 31 s behind, 1 file not yet stored"


def test_twice_the_usual_is_an_alarm_too_but_not_for_seconds():
    lag = Lag("s3://b/p")
    for begin in (0.0, 100.0):
        lag.differ({"a"}, begin)
        lag.committed(set(), begin + 8)
    lag.differ({"a"}, 200.0)
    assert lag.alarm(215.0) is None
    alarm = lag.alarm(217.0)
    assert alarm is not None
    assert alarm.endswith("8 s is usual")


def test_a_failing_store_is_left_alone_longer_and_longer():
    lag = Lag("s3://b/p")
    assert lag.wait_s(0.0) == 0.0
    assert lag.failed("away", grave=False, now=0.0)
    waits = []
    for _ in range(7):
        waits.append(lag.wait_s(0.0))
        assert not lag.failed("away", grave=False, now=0.0)
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    assert lag.alarm(29.0) is None
    assert lag.alarm(30.0) == "checkpoints cannot be stored for 30 s now: away"
    assert lag.recovered()
    assert not lag.recovered()
    assert (lag.wait_s(0.0), lag.alarm(99.0)) == (0.0, None)


def test_what_waiting_does_not_cure_is_told_at_once():
    lag = Lag("s3://b/p")
    lag.failed("wrong keys", grave=True, now=0.0)
    assert lag.alarm(0.0) == "checkpoints cannot be stored for 0 s now: wrong keys"
    assert lag.is_failing


def test_what_is_still_being_written_is_not_late_by_what_is_usual():
    lag = Lag("s3://b/p")
    lag.differ({"a"}, 0.0)
    lag.committed(set(), 1.0)
    lag.differ({"a"}, 10.0, {"a"})
    assert lag.alarm(25.0) is None
    alarm = lag.alarm(45.0)
    assert alarm is not None
    assert "1 file not yet stored (1 being written)" in alarm


def test_names_that_come_and_go_while_nothing_is_stored_are_an_alarm():
    lag = Lag("s3://b/p")
    for second in range(32):
        lag.differ({f"file-{second}"}, float(second))
    alarm = lag.alarm(32.0)
    assert alarm is not None
    assert "32 s behind, 1 file not yet stored" in alarm
