"""No tick is lost and none is done twice, whatever crashes between any two events."""

from __future__ import annotations

from itertools import takewhile
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.control.schedules import BERLIN, KEY, Calendar, a_calendar, a_schedule
from windfall.control.commands.calendar import TargetFailed
from windfall.control.instructions import InvokeTarget, WriteDeadLetter
from windfall.control.timekeeping import next_due
from windfall.jobs.states import PLACED
from windfall.schedules.due_times import due_times
from windfall.schedules.schedule import SummerTime, TickOutcome

EXPRESSIONS = ("cron(0/20 * * * ? *)", "rate(1 hour)", "cron(30 1,2 * * ? *)", "cron(0 2 ? * MON-FRI *)")
#: In the nights before and after the clocks change, and in one where nothing happens.
STARTS = ("2026-10-24 23:10", "2027-03-27 23:10", "2026-11-15 12:00")
MINUTE = 60_000

steps = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 200)),
    st.tuples(st.just("down"), st.integers(1, 3000)),
    st.tuples(
        st.sampled_from(["crash", "invoke", "fail", "fail for good", "end", "late"]), st.integers(0, 5)
    ),
)


class Story:
    """A calendar whose post-commit tasks are run when the story says so, or never."""

    def __init__(self, calendar: Calendar) -> None:
        self.calendar, self.world = calendar, calendar.world
        calendar.deaf = True
        #: Tasks that a daemon has yet to run, and those of daemons that were killed: late, but not impossible.
        self.tasks: list[InvokeTarget | WriteDeadLetter] = []
        self.late: list[InvokeTarget | WriteDeadLetter] = []

    def does(self, step: str, number: int) -> None:
        """One event."""
        if step == "pass":
            target = self.world.now + number * MINUTE
            while (due := next_due(self.world.state)) is not None and due <= target:
                self._at(max(due, self.world.now))
            self._at(target)
        elif step == "down":
            self.world.now += number * MINUTE
            self._crashes()
        elif step == "crash":
            self._crashes()
        elif step == "end":
            self.ends(number)
        else:
            waiting = self.late if step == "late" else self.tasks
            if waiting:
                self._answers(waiting.pop(number % len(waiting)), step)
        self._at(self.world.now)

    def _at(self, now: int) -> None:
        self.world.now = now
        self.world.later(0)
        self.calendar.carries_out()
        self.tasks += self.calendar.undone
        self.calendar.undone = []

    def _crashes(self) -> None:
        self.late += self.tasks
        self.tasks = []
        self.world.restarted()

    def _answers(self, task: InvokeTarget | WriteDeadLetter, step: str) -> None:
        if step.startswith("fail") and isinstance(task, InvokeTarget):
            failed = TargetFailed(task.schedule.key, task.due_at, "no", again=step == "fail")
            self.world.happens(failed)
        else:
            self.calendar.does(task)

    def ends(self, number: int) -> None:
        self.world.ready()
        placed = [job.id for job in self.world.state.jobs.values() if job.state in PLACED]
        if placed:
            self.world.exits(placed[number % len(placed)])


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(STARTS),
    st.sampled_from(["allow", "skip", "queue", "replace"]),
    st.sampled_from(["once", "all", "skip"]),
    st.sampled_from(["aws", "shift"]),
    st.lists(steps, max_size=25),
)
def test_every_due_time_has_one_tick_and_at_most_one_run(expression, start, overlap, catch_up, summer, told):
    calendar = a_calendar(start)
    dead_letter = "arn:aws:sqs:us-east-1:123456789012:failed"
    made = a_schedule(expression, timezone=BERLIN, retries=2, dead_letter=dead_letter)
    calendar.makes(made, overlap=overlap, catch_up=catch_up, summer_time=summer)
    schedule = calendar.world.state.schedules[KEY]
    story = Story(calendar)
    for step in [("pass", 0), *told]:
        story.does(*step)
        check(calendar)
    due = due_times(schedule, schedule.decided_at, ZoneInfo(BERLIN), SummerTime(summer))
    expected = [one.at for one in takewhile(lambda one: one.at <= calendar.world.now, due)]
    ticks = [due_at for _, due_at in sorted(calendar.world.store.ticks)]
    too_old = [
        tick.due_at for tick in calendar.world.store.ticks.values() if "older than" in (tick.reason or "")
    ]
    if too_old:
        # One tick stands for all that are too old; it says so, and up to when.
        assert set(ticks) <= set(expected)
    else:
        assert ticks == expected
    # Whatever is open is done in the end, once nothing crashes any more.
    calendar.deaf = False
    for task in story.tasks:
        calendar.does(task)
    story.does("crash", 0)
    for _ in range(len(calendar.world.state.ticks) + len(calendar.world.state.jobs) + 2):
        calendar.until(calendar.world.now + 10_000)
        story.ends(0)
    calendar.until(calendar.world.now)
    open_ticks = [tick for tick in calendar.world.state.ticks.values() if tick.at <= calendar.world.now]
    assert [tick for tick in open_ticks if tick.outcome is not TickOutcome.STARTED] == []
    check(calendar)


def check(calendar: Calendar) -> None:
    """What holds after every event."""
    world = calendar.world
    # Jobs that ended long ago are removed; their ticks tell of them for longer.
    runs = {job_id for job_id in [*world.store.jobs, *world.store.purged] if job_id.startswith("nightly")}
    started = [tick for tick in world.store.ticks.values() if tick.run is not None]
    assert sorted(tick.run for tick in started) == sorted(runs)
    assert all(tick.outcome is TickOutcome.STARTED for tick in started)
    closed = [tick for tick in world.store.ticks.values() if not tick.undone and tick.run is None]
    assert all(tick.reason for tick in closed), "what is not done has a reason"
    live = [tick for tick in started if tick.run in world.state.jobs]
    if world.state.schedules[KEY].tags["windfall:overlap"] != "allow":
        assert len(live) <= 1
    assert {key for key, tick in world.store.ticks.items() if tick.undone} == set(world.state.ticks)
