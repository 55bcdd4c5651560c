"""Time zones by name, from the host's database or, where it has none, from the package tzdata.

Decides which names are valid and what to suggest for others. The core gets `zone_named` and reads no files.
"""

from __future__ import annotations

import difflib
import zoneinfo
from functools import lru_cache

from windfall.schedules.errors import UnknownZone
from windfall.schedules.zones import Zone

_SUGGESTIONS = 3
_SHOWN_CHARACTERS = 50


@lru_cache(maxsize=1024)
def zone_named(name: str) -> Zone:
    """The zone of this name in the IANA database; raises UnknownZone with similar names."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # A folder of the database, a path out of it or a name with odd characters is not a zone either.
        raise UnknownZone(_advice(name)) from None


def _advice(name: str) -> str:
    near = near_names(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "write a name such as Europe/Berlin or UTC"
    return f"Invalid ScheduleExpressionTimezone {name[:_SHOWN_CHARACTERS]!r}: no such time zone; {hint}"


def near_names(name: str) -> list[str]:
    """A few similar names of zones, the closest first."""
    wanted = name.replace(" ", "_").casefold()
    names = _folded_names()
    if wanted in names:
        return [names[wanted]]
    cities = {folded.rpartition("/")[2]: full for folded, full in names.items()}
    by_city = [full for folded, full in names.items() if folded.rpartition("/")[2] == wanted]
    near = by_city + [names[folded] for folded in difflib.get_close_matches(wanted, names, _SUGGESTIONS)]
    city = wanted.rpartition("/")[2]
    near += [cities[folded] for folded in difflib.get_close_matches(city, cities, _SUGGESTIONS)]
    return list(dict.fromkeys(near))[:_SUGGESTIONS]


@lru_cache(maxsize=1)
def _folded_names() -> dict[str, str]:
    # Names with a city come first, then the old short names such as GB. Nothing in Etc/ is suggested: Etc/GMT+1 is an
    # hour behind Greenwich, which is not what UTC+1 means.
    names = [name for name in zoneinfo.available_timezones() if not name.startswith("Etc/")]
    return {name.casefold(): name for name in sorted(names, key=lambda name: ("/" not in name, name))}
