"""Says in plain words when a schedule runs: "Monday to Friday at 02:00 Europe/Berlin".

Decides words alone, from the parsed expression, so that they cannot say other than what is done. Must not know times
that are due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from windfall.schedules.cron_fields import DAY_OF_MONTH, HOURS, MINUTES, MONTH, YEAR
from windfall.schedules.expressions import At, Cron, Rate, parse
from windfall.schedules.month_days import MonthDays
from windfall.schedules.schedule import Schedule

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
#: Up to this many times of day are written out.
_TIMES_MAX = 4
#: From three on, values in a row are a range.
_RANGE = 3


def describe(schedule: Schedule) -> str:
    """When it runs, for people, in its own time zone."""
    expression = parse(schedule.expression)
    if isinstance(expression, Rate):
        return (
            f"every {expression.unit if expression.value == 1 else f'{expression.value} {expression.unit}s'}"
        )
    if isinstance(expression, At):
        moment = expression.moment
        clock = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
        return f"once on {moment:%Y-%m-%d} at {clock} {schedule.timezone}"
    return f"{_cron(expression)} {schedule.timezone}"


def _cron(cron: Cron) -> str:
    days, times = _days(cron.days), _times(cron.hours, cron.minutes)
    months = (
        "" if _all(cron.months, MONTH.least, MONTH.most) else f" in {_listed(_spans(cron.months, _month))}"
    )
    years = "" if _all(cron.years, YEAR.least, YEAR.most) else f" in {_listed(_spans(cron.years, str))}"
    if days == "every day" and times.startswith("every"):
        return f"{times}{months}{years}"
    return f"{days}{months}{years} {times}"


def _times(hours: Sequence[int], minutes: Sequence[int]) -> str:
    if len(hours) * len(minutes) <= _TIMES_MAX:
        return "at " + _listed([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    often = _often(minutes)
    step = _step(hours, HOURS.least, HOURS.most)
    if step == 1:
        return often
    if step is not None:
        every = often.replace("every hour", f"every {step} hours", 1)
        return every if every != often else f"{often} of every {_number(step)} hour"
    return f"{often} in the hours {_listed(_spans(hours, lambda hour: f'{hour:02}'))}"


def _often(minutes: Sequence[int]) -> str:
    step = _step(minutes, MINUTES.least, MINUTES.most)
    if step is not None:
        return "every minute" if step == 1 else f"every {step} minutes"
    if tuple(minutes) == (0,):
        return "every hour"
    word = "minute" if len(minutes) == 1 else "minutes"
    return f"every hour at {word} {_listed(_spans(minutes, str))}"


def _step(values: Sequence[int], least: int, most: int) -> int | None:
    """The step that leads evenly through the whole range, if there is one."""
    if len(values) < 2:
        return None
    step = values[1] - values[0]
    whole = (most - least + 1) % step == 0
    return step if whole and list(values) == list(range(least, most + 1, step)) else None


def _days(days: MonthDays) -> str:
    if _all(sorted(days.weekdays), 1, 7) or _all(sorted(days.numbers), DAY_OF_MONTH.least, DAY_OF_MONTH.most):
        return "every day"
    words = _spans(_from_monday(days.weekdays), lambda weekday: _WEEKDAYS[(weekday - 1) % 7])
    of_month = [f"the {span}" for span in _spans(sorted(days.numbers), _number)]
    of_month += [f"the weekday nearest to the {_number(day)}" for day in sorted(days.nearest_weekday)]
    of_month += ["the last weekday"] if days.last_weekday else []
    of_month += [_from_last(back) for back in sorted(days.from_last)]
    of_month += [f"the last {_WEEKDAYS[weekday - 1]}" for weekday in sorted(days.last_of)]
    of_month += [
        f"the {_ORDINALS[number - 1]} {_WEEKDAYS[weekday - 1]}" for weekday, number in sorted(days.nth)
    ]
    if of_month:
        words.append(f"{_listed(of_month)} of the month")
    return _listed(words)


def _from_monday(weekdays: Iterable[int]) -> list[int]:
    """Weekdays in the order in which people say them; Sunday counts as the eighth day."""
    return sorted(8 if weekday == 1 else weekday for weekday in weekdays)


def _from_last(back: int) -> str:
    return "the last day" if back == 0 else f"{back} day{'s' if back > 1 else ''} before the last day"


def _month(number: int) -> str:
    return _MONTHS[number - 1]


def _number(number: int) -> str:
    """1st, 2nd, 3rd, 4th ..."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number in (11, 12, 13) else endings.get(number % 10, "th")
    return f"{number}{ending}"


def _all(values: Sequence[int], least: int, most: int) -> bool:
    return len(values) == most - least + 1


def _spans(values: Sequence[int], word: Callable[[int], str]) -> list[str]:
    """Values with rows of neighbours drawn together: Monday to Friday."""
    spans: list[list[int]] = []
    for value in values:
        if spans and value == spans[-1][-1] + 1:
            spans[-1].append(value)
        else:
            spans.append([value])
    words: list[str] = []
    for span in spans:
        if len(span) >= _RANGE:
            words.append(f"{word(span[0])} to {word(span[-1])}")
        else:
            words += [word(value) for value in span]
    return words


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
