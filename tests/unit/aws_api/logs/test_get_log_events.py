"""GetLogEvents: pages, tokens, times, and what of a running attempt is shown."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.logs.log_world import ACCOUNT, GROUP, T, messages
from windfall.agent.attempt_files import RecordedLog
from windfall.aws_api.logs.attempt_log import SETTLE_MS, AttemptLog, LogEnd
from windfall.aws_api.logs.errors import InvalidParameter, ResourceNotFound
from windfall.aws_api.logs.pages import ReadBudget, Window, page_after, page_before
from windfall.aws_api.protocol.errors import ApiError


def read_forward(world, name, **params):
    """All events as users' loops read them: until the token stays the same."""
    events, token = [], None
    while True:
        page = world.get(name, startFromHead=True, **params, **({"nextToken": token} if token else {}))
        events += page["events"]
        if page["nextForwardToken"] == token:
            assert page["events"] == []
            return events
        token = page["nextForwardToken"]


def read_backward(world, name, **params):
    events, token = [], None
    while True:
        page = world.get(name, **params, **({"nextToken": token} if token else {}))
        events = page["events"] + events
        if page["nextBackwardToken"] == token:
            assert page["events"] == []
            return events
        token = page["nextBackwardToken"]


def test_a_finished_log_from_both_sides(world):
    world.log("s").write(b"first\n\nsecond\r\n", at=T).write(b"third\nlast", at=T + 500).end(T + 900)
    head = world.get("s", startFromHead=True)
    assert head["events"] == [
        {"timestamp": T, "message": "first", "ingestionTime": T},
        {"timestamp": T, "message": "second", "ingestionTime": T},
        {"timestamp": T + 500, "message": "third", "ingestionTime": T + 500},
        {"timestamp": T + 900, "message": "last", "ingestionTime": T + 900},
    ]
    assert world.get("s")["events"] == head["events"]
    for limit in (1, 2, 3, 4, 5):
        assert read_forward(world, "s", limit=limit) == head["events"]
        assert read_backward(world, "s", limit=limit) == head["events"]


def test_the_default_is_the_last_page_and_its_tokens_lead_both_ways(world):
    log = world.log("s").write(b"a\nb\nc\n", at=T)
    page = world.get("s", limit=2)
    assert messages(page) == ["b", "c"]
    assert messages(world.get("s", nextToken=page["nextBackwardToken"])) == ["a"]
    nothing = world.get("s", nextToken=page["nextForwardToken"])
    assert nothing["events"] == []
    assert nothing["nextForwardToken"] == page["nextForwardToken"]
    log.write(b"d\n", at=T + 500)
    assert messages(world.get("s", nextToken=page["nextForwardToken"])) == ["d"]


def test_tokens_look_like_cloudwatchs(world):
    world.log("s").write(b"a\n", at=T)
    page = world.get("s")
    for token, direction in ((page["nextForwardToken"], "f"), (page["nextBackwardToken"], "b")):
        first, digits, last = token.split("/")
        assert (first, len(digits), digits.isdigit(), last) == (direction, 56, True, "s")


@pytest.mark.parametrize("content", [None, b"", b"\n\r\n\n"])
def test_a_log_without_events_has_tokens_that_stay(world, content):
    log = world.log("s")
    if content is not None:
        log.write(content, at=T)
    for params in ({}, {"startFromHead": True}):
        page = world.get("s", **params)
        assert page["events"] == []
        again = world.get("s", nextToken=page["nextForwardToken"])
        assert again["nextForwardToken"] == page["nextForwardToken"]


def test_start_is_inclusive_and_end_exclusive(world):
    log = world.log("s")
    for n in range(5):
        log.write(b"%d\n" % n, at=T + n * 500)
    window = {"startTime": T + 500, "endTime": T + 1500}
    for params in ({}, {"startFromHead": True}):
        assert messages(world.get("s", **window, **params)) == ["1", "2"]
        assert messages(world.get("s", startTime=T + 1501, **params)) == ["4"]
        assert messages(world.get("s", startTime=T + 9000, **params)) == []
        assert messages(world.get("s", endTime=T, **params)) == []
        assert messages(world.get("s", endTime=T + 1, **params)) == ["0"]
        assert messages(world.get("s", endTime=T + 9000, **params)) == ["0", "1", "2", "3", "4"]
    assert messages(read_forward(world, "s", limit=1, **window)) == ["1", "2"]
    assert messages(read_backward(world, "s", limit=1, **window)) == ["1", "2"]


def test_a_line_that_a_record_cut_through_has_the_time_of_its_end(world):
    world.log("s").write(b"one\ntw", at=T).write(b"o\nthree\n", at=T + 500)
    assert [event["timestamp"] for event in world.get("s")["events"]] == [T, T + 500, T + 500]
    assert messages(world.get("s", startTime=T + 1)) == ["two", "three"]
    assert messages(world.get("s", endTime=T + 1)) == ["one"]


def test_without_times_the_files_own_time_serves(world):
    world.log("s").write(b"a\nb\n").touched(T + 7).end(T + 8)
    assert [event["timestamp"] for event in world.get("s")["events"]] == [T + 7, T + 7]
    assert messages(world.get("s", startTime=T + 7)) == ["a", "b"]
    assert messages(world.get("s", startTime=T + 8, startFromHead=True)) == []


def test_a_rest_beyond_the_records_is_never_earlier_than_they_are(world):
    world.log("s").write(b"a\n", at=T).write(b"b\n").touched(T - 5000).end(T + 1)
    assert [event["timestamp"] for event in world.get("s")["events"]] == [T, T]


def test_a_running_attempt_shows_complete_lines_only(world):
    log = world.log("s").write(b"done\npart", at=T)
    page = world.get("s")
    assert messages(page) == ["done"]
    log.write(b"ial\nnext", at=T + 500)
    page = world.get("s", nextToken=page["nextForwardToken"])
    assert messages(page) == ["partial"]
    log.end(T + 700)
    page = world.get("s", nextToken=page["nextForwardToken"])
    assert page["events"] == [{"timestamp": T + 700, "message": "next", "ingestionTime": T + 700}]


def test_a_running_attempts_line_is_shown_once_its_time_is_known(world):
    log = world.log("s").write(b"timed\n", at=T).write(b"untimed\n").touched(T + 100)
    world.now = T + 200
    assert messages(world.get("s")) == ["timed"]
    log.note(T + 500)
    assert messages(world.get("s")) == ["timed", "untimed"]


def test_when_no_record_comes_a_quiet_log_is_shown_all_the_same(world):
    world.log("s").write(b"untimed\n").touched(T)
    world.now = T + SETTLE_MS - 1
    assert messages(world.get("s")) == []
    world.now = T + SETTLE_MS
    assert messages(world.get("s")) == ["untimed"]


def test_an_attempt_that_nobody_remembers_has_ended(world):
    world.log("s").write(b"first\nlast", at=T)
    world.store.by_id.clear()
    assert messages(world.get("s")) == ["first", "last"]


def test_an_earlier_attempt_of_a_live_job_has_ended(world):
    log = world.log("s").write(b"lost", at=T)
    log.attempt.stopped_at = T + 5
    assert messages(world.get("s")) == ["lost"]


def test_bytes_that_are_no_utf8_become_replacement_characters(world):
    world.log("s").write(b"ok \xff\xfe \xe2\x82\nnul \0 too\n", at=T)
    assert messages(world.get("s")) == ["ok \ufffd\ufffd \ufffd", "nul \0 too"]


def test_a_page_is_bounded_by_bytes(world):
    world.log("s").write((b"x" * 99_999 + b"\n") * 30, at=T)
    page = world.get("s", startFromHead=True)
    assert len(page["events"]) == 10
    assert len(read_forward(world, "s")) == len(read_backward(world, "s")) == 30


def test_a_page_is_bounded_by_events(world):
    log = world.log("s").write(b"".join(b"%d\n" % n for n in range(12_345)), at=T).end(T)
    opened = AttemptLog(RecordedLog(str(log.path)), LogEnd(ended=True), T)
    # A request gives up after half a second, which a busy machine may need.
    patient = [ReadBudget(scan_s=600) for _ in range(2)]
    assert page_after(opened, 0, Window(), patient[0]).events[-1][1] == "9999"
    assert page_before(opened, log.path.stat().st_size, Window(), patient[1]).events[0][1] == str(
        12_345 - 10_000
    )
    assert messages(read_forward(world, "s")) == [str(n) for n in range(12_345)]


def test_a_page_that_cost_its_budget_is_empty_and_moves_on(world):
    log = world.log("s").write(b"first\n" + b"\n" * 1000 + b"last\n", at=T).end(T)
    opened = AttemptLog(RecordedLog(str(log.path)), LogEnd(ended=True), T)
    forward = page_after(opened, 6, Window(), ReadBudget(scan_bytes=400))
    assert (forward.events, forward.top, forward.bottom) == ([], 6, 406)
    backward = page_before(opened, 1006, Window(), ReadBudget(scan_bytes=400))
    assert (backward.events, backward.top, backward.bottom) == ([], 606, 1006)


def test_a_long_run_of_blank_lines_hides_nothing(world):
    world.log("s").write(b"first\n" + b"\n" * 200_000 + b"last\n", at=T)
    assert messages(read_forward(world, "s")) == ["first", "last"]
    assert messages(read_backward(world, "s")) == ["first", "last"]


def test_tokens_that_were_not_given_out_are_refused(world):
    world.log("s").write(b"a\nb\n", at=T)
    world.log("other").write(b"a\nb\n", at=T)
    token = world.get("s")["nextForwardToken"]
    changed = token[:-3] + str((int(token[-3]) + 1) % 10) + token[-2:]
    for bad in ("x", "", changed, "b" + token[1:], token + "0", world.get("other")["nextForwardToken"]):
        with pytest.raises(InvalidParameter, match="nextToken is invalid"):
            world.get("s", nextToken=bad)


def test_what_does_not_exist_is_named(world):
    with pytest.raises(ResourceNotFound, match="log stream") as caught:
        world.get("s")
    assert (caught.value.code, caught.value.status) == ("ResourceNotFoundException", 400)
    assert caught.value.message == "The specified log stream does not exist."
    with pytest.raises(ResourceNotFound, match="log group") as caught:
        world.ask("GetLogEvents", logGroupName="nope", logStreamName="s")
    assert caught.value.message == "The specified log group does not exist."


def test_a_group_is_named_by_name_or_arn(world):
    world.log("s", group="mine").write(b"a\n", at=T)
    arn = f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:mine"
    for identifier in ("mine", arn, f"{arn}:*"):
        assert messages(world.ask("GetLogEvents", logGroupIdentifier=identifier, logStreamName="s")) == ["a"]
    refusals = {
        "ResourceNotFoundException": [{"logGroupIdentifier": arn.replace(ACCOUNT, "999999999999")}],
        "InvalidParameterException": [
            {},
            {"logGroupIdentifier": "arn:aws:s3:::bucket"},
            {"logGroupIdentifier": arn, "logGroupName": GROUP},
        ],
    }
    for code, cases in refusals.items():
        for params in cases:
            with pytest.raises(ApiError) as caught:
                world.ask("GetLogEvents", logStreamName="s", **params)
            assert caught.value.code == code


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../b", "..", "\u2026"])
def test_names_are_never_paths(world, name):
    world.log(name, group="../" + name).write(b"own\n", at=T)
    assert messages(world.ask("GetLogEvents", logGroupName="../" + name, logStreamName=name)) == ["own"]


def test_a_task_id_that_is_none_never_becomes_a_path(world):
    stream = world.log("s").stream
    bad = type(stream)(stream.group, "evil", "../../../etc/passwd", stream.job_id, T)
    world.store.streams[GROUP, "evil"] = bad
    with pytest.raises(ValueError, match="must not become a path"):
        world.get("evil")
