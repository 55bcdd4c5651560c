"""The tags of a compute environment that describe its market: when instances come, stay and are taken away.

Decides what a tag's value may be, with a text that says so. Must not know what an engine makes of it: the wire asks
here before anything is declared, and the simulated engine reads the same values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from windfall.capacity.environments import RECLAIMABLE, Provisioning
from windfall.jobs.errors import Invalid

T = TypeVar("T")

MTBI = "windfall:mtbi-s"
TRACE = "windfall:trace"
INTERRUPT_AT = "windfall:interrupt-at"
SEED = "windfall:seed"
BOOT = "windfall:boot-s"
NOTICE = "windfall:notice-s"
CAPACITY = "windfall:capacity"
SUDDEN = "windfall:sudden"

#: Ways in which spot instances are taken away; an environment has one of them.
_WAYS = (MTBI, TRACE, INTERRUPT_AT)
#: What means something for capacity that can be taken away alone.
_SPOT_ONLY = (*_WAYS, NOTICE, SUDDEN)
#: All of them.
MARKET_TAGS = (MTBI, TRACE, INTERRUPT_AT, SEED, BOOT, NOTICE, CAPACITY, SUDDEN)

_YEAR_S = 365 * 86_400.0
_MOST_INSTANCES = 100_000
_MOST_MOMENTS = 1_000
_TYPE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class MarketTags:
    """What the tags of one environment say; None where they say nothing. Seconds are simulated ones."""

    #: Mean time between interruptions of an instance.
    mtbi_s: float | None = None
    #: The same for single types or families, before the mean of all.
    mtbi_of: Mapping[str, float] = field(default_factory=dict)
    #: The file of a recorded trace.
    trace: str | None = None
    #: When the first, second, ... instance ever launched is taken away, counted from its launch.
    interrupt_at_s: tuple[float, ...] | None = None
    seed: int | None = None
    boot_s: float | None = None
    notice_s: float | None = None
    #: How many instances are available at once.
    capacity: int | None = None
    #: How probable it is that an instance goes without notice.
    sudden: float | None = None

    def mtbi_of_type(self, name: str) -> float | None:
        """The mean for one type: its own, its family's, or that of all; None when no tag says it."""
        family = name.partition(".")[0]
        return self.mtbi_of.get(name, self.mtbi_of.get(family, self.mtbi_s))


def market_tags_of(tags: Mapping[str, str]) -> list[str]:
    """The keys among an environment's tags that describe a market."""
    return [key for key in MARKET_TAGS if key in tags]


def refuse_market_tags(tags: Mapping[str, str], where: str) -> None:
    """Raise Invalid for tags of a market where there is none, rather than let them do nothing."""
    if named := market_tags_of(tags):
        raise Invalid(
            f"{', '.join(named)} is for the simulated market, and {where};"
            " add the tag windfall:engine=simulated, or leave it out"
        )


def parse_market_tags(tags: Mapping[str, str], provisioning: Provisioning) -> MarketTags:
    """Read the tags; raises Invalid with the key, the value and what is allowed."""
    if provisioning not in RECLAIMABLE:
        misplaced = [key for key in _SPOT_ONLY if key in tags]
        if misplaced:
            raise Invalid(
                f"{', '.join(misplaced)} describes capacity that is taken away, and {provisioning} capacity is not;"
                " use type SPOT (or FARGATE_SPOT), or leave the tag out"
            )
    ways = [key for key in _WAYS if key in tags]
    if len(ways) > 1:
        raise Invalid(f"{' and '.join(ways)} contradict one another; keep one of them")
    mtbi_s, mtbi_of = _read(tags, MTBI, _means) or (None, {})
    return MarketTags(
        mtbi_s=mtbi_s,
        mtbi_of=mtbi_of,
        trace=_read(tags, TRACE, _path),
        interrupt_at_s=_read(tags, INTERRUPT_AT, _moments),
        seed=_read(tags, SEED, lambda text: _whole(text, 0, 2**63)),
        boot_s=_read(tags, BOOT, lambda text: _seconds(text, 0)),
        notice_s=_read(tags, NOTICE, lambda text: _seconds(text, 0)),
        capacity=_read(tags, CAPACITY, lambda text: _whole(text, 0, _MOST_INSTANCES)),
        sudden=_read(tags, SUDDEN, _probability),
    )


def _read(tags: Mapping[str, str], key: str, read: Callable[[str], T]) -> T | None:
    if key not in tags:
        return None
    value = tags[key].strip()
    try:
        return read(value)
    except ValueError as error:
        raise Invalid(f"The tag {key} must be {error}, not {value[:100]!r}") from None


def _number(text: str, meaning: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(meaning) from None
    if not math.isfinite(number):
        raise ValueError(meaning)
    return number


def _seconds(text: str, least: float) -> float:
    meaning = f"a number of seconds between {least:g} and {_YEAR_S:,.0f}"
    number = _number(text, meaning)
    if not least <= number <= _YEAR_S:
        raise ValueError(meaning)
    return number


def _whole(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most):
        raise ValueError(f"a whole number between {least:,} and {most:,}")
    return int(text)


def _probability(text: str) -> float:
    meaning = "a probability between 0 and 1"
    number = _number(text, meaning)
    if not 0 <= number <= 1:
        raise ValueError(meaning)
    return number


def _path(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise ValueError("the absolute path of a trace on the daemon's host, such as /data/us-east-1a.json")
    return text


def _words(text: str) -> list[str]:
    """A list's members. AWS allows no comma in a tag's value, so blanks separate as well."""
    return text.replace(",", " ").split()


def _moments(text: str) -> tuple[float, ...]:
    words = _words(text)
    if not 1 <= len(words) <= _MOST_MOMENTS:
        raise ValueError("a list of seconds, such as 20 45 70")
    return tuple(_seconds(word, 0) for word in words)


def _means(text: str) -> tuple[float | None, dict[str, float]]:
    meaning = (
        "a number of seconds above 0, or several for types and families such as 7200 p3.2xlarge=600 g5=3600"
    )
    every: float | None = None
    single: dict[str, float] = {}
    for word in _words(text):
        name, equals, value = word.rpartition("=")
        number = _number(value, meaning)
        if not 0 < number <= _YEAR_S or (equals and not _TYPE.match(name)):
            raise ValueError(meaning)
        if equals:
            single[name] = number
        else:
            every = number
    if every is None and not single:
        raise ValueError(meaning)
    return every, single
