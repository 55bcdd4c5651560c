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
    assert lag.seconds(18.0) == 4.0
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
        lag.committed(set(), begin + 4)
    lag.differ({"a"}, 200.0)
    assert lag.alarm(207.0) is None
    alarm = lag.alarm(209.0)
    assert alarm is not None
    assert alarm.endswith("4 s is usual")


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
