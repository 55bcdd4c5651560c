"""The journal: what was written is read again, whatever was cut off."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from windfall.agent.journal import AnyRecord, EpochSeen, Journal, read_journal
from windfall.agent.messages import Exited, Lost, Start
from windfall.agent.records import (
    Accepted,
    Departed,
    Ended,
    Forgotten,
    Intended,
    Launching,
    Losing,
    Noticed,
    Spawned,
    Told,
)
from windfall.jobs.staging import Channel, Checkpoints, Staging


def an_intent(token: str) -> Intended:
    return Intended(token, f"task-{token}", f"/logs/{token}", ["/attempts/x"], 512, 1.5, False, 1000)


def an_exit(token: str, code: int = 0) -> Exited:
    return Exited(token, code, None, 1001, 1002, "process")


def a_journal(path: Path, **options: int) -> Journal:
    journal = Journal(str(path), "boot-1", **options)
    journal.rewrite(0, [])
    return journal


def test_a_missing_journal_is_an_empty_one(tmp_path: Path):
    replay = read_journal(str(tmp_path / "none"))
    assert (replay.boot_id, replay.epoch, replay.stories) == ("", 0, {})


def test_each_attempt_is_told_as_far_as_it_got(tmp_path: Path):
    path = tmp_path / "journal"
    journal = a_journal(path)
    for record in (
        an_intent("a"),
        an_intent("b"),
        Spawned("b", 12, 345, 1001, "process"),
        an_intent("c"),
        Spawned("c", 13, 346, 1001, "process"),
        Ended(an_exit("c", 7)),
        an_intent("d"),
        Ended(Lost("d", 9)),
        Forgotten(["d"]),
        EpochSeen(4),
    ):
        journal.add(record)
    journal.flush(sync=True)
    replay = read_journal(str(path))
    assert (replay.boot_id, replay.epoch, set(replay.stories)) == ("boot-1", 4, {"a", "b", "c"})
    assert replay.stories["a"].spawned is None
    assert replay.stories["b"].spawned == Spawned("b", 12, 345, 1001, "process")
    assert replay.stories["c"].result == an_exit("c", 7)


def test_the_first_result_stands(tmp_path: Path):
    path = tmp_path / "journal"
    journal = a_journal(path)
    for record in (an_intent("a"), Ended(an_exit("a", 3)), Ended(Lost("a", 99))):
        journal.add(record)
    journal.flush()
    assert read_journal(str(path)).stories["a"].result == an_exit("a", 3)


def test_nothing_is_written_before_a_flush_and_one_record_can_go_ahead(tmp_path: Path):
    path = tmp_path / "journal"
    journal = a_journal(path)
    journal.add(an_intent("late"))
    journal.write_now(an_intent("now"))
    assert set(read_journal(str(path)).stories) == {"now"}
    journal.flush()
    assert set(read_journal(str(path)).stories) == {"now", "late"}


def test_a_grown_journal_asks_to_be_rewritten_and_keeps_what_lives(tmp_path: Path):
    path = tmp_path / "journal"
    journal = a_journal(path, compact_above_bytes=2000)
    for n in range(40):
        journal.add(an_intent(str(n)))
        journal.add(Forgotten([str(n)]) if n else EpochSeen(2))
    journal.flush()
    assert journal.wants_compaction
    journal.rewrite(2, read_journal(str(path)).stories.values())
    assert not journal.wants_compaction
    assert path.stat().st_size < 500
    journal.add(Ended(an_exit("0", 1)))
    journal.flush()
    replay = read_journal(str(path))
    assert (replay.epoch, replay.stories["0"].result) == (2, an_exit("0", 1))


@given(cut=st.integers(min_value=0, max_value=400))
def test_a_journal_cut_anywhere_tells_a_beginning_of_the_story(tmp_path_factory, cut: int):
    path = tmp_path_factory.mktemp("journal") / "journal"
    journal = a_journal(path)
    whole: list[AnyRecord] = [an_intent("a"), Spawned("a", 1, 2, 3, "process"), Ended(an_exit("a"))]
    for record in whole:
        journal.add(record)
    journal.flush()
    path.write_bytes(path.read_bytes()[:cut])
    stories = read_journal(str(path)).stories
    told = stories["a"].records() if stories else []
    assert told == whole[: len(told)]


def a_staged_start(token: str) -> Start:
    staging = Staging(
        checkpoints=Checkpoints("s3://bucket/job"), channels=(Channel("train", "s3://bucket/x"),)
    )
    return Start(token, "task", ["true"], {"A": "b"}, None, "/log", 1.0, 64, [], staging=staging, fence=5)


def test_a_staged_attempt_is_told_stage_by_stage_also_after_a_compaction(tmp_path: Path):
    path = tmp_path / "journal"
    journal = a_journal(path)
    start = a_staged_start("a")
    records: list[AnyRecord] = [
        an_intent("a"),
        Accepted(start),
        Launching("a", 4711, 1001),
        Spawned("a", 12, 345, 1001, "process"),
        Noticed("a", 1002, 9000, "spot"),
        Told("a", [(12, 345)]),
        Losing("a"),
        Departed(an_exit("a", 143)),
    ]
    for record in records:
        journal.add(record)
    journal.add(Noticed("a", 1002, 8000, "sooner"))
    journal.flush()
    for _ in range(2):
        story = read_journal(str(path)).stories["a"]
        assert story.accepted == start
        assert story.launching == Launching("a", 4711, 1001)
        assert story.noticed == Noticed("a", 1002, 8000, "sooner")
        assert story.told == Told("a", [(12, 345)])
        assert story.losing
        assert (story.departed, story.result) == (an_exit("a", 143), None)
        journal.rewrite(0, [story])


def test_an_ended_attempt_needs_no_staging_any_more(tmp_path: Path):
    path = tmp_path / "journal"
    journal = a_journal(path)
    for record in (an_intent("a"), Accepted(a_staged_start("a")), Ended(an_exit("a"))):
        journal.add(record)
    journal.flush()
    journal.rewrite(0, read_journal(str(path)).stories.values())
    story = read_journal(str(path)).stories["a"]
    assert (story.accepted, story.result) == (None, an_exit("a"))


def test_a_line_that_is_no_text_is_passed_over(tmp_path: Path):
    path = tmp_path / "journal"
    a_journal(path)
    with path.open("ab") as file:
        file.write(b'["F",["\xff\xfe"]]\n["H",7]\n')
    assert read_journal(str(path)).epoch == 7
