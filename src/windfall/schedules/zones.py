"""How the core gets at time zones: as an argument, since their rules lie in files.

Decides what stands in where nobody passed any. Must not know where the rules lie; daemon/time_zones.py does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, tzinfo

from windfall.schedules.errors import UnknownZone

#: The rules of one time zone, by this name for modules that know no dates.
Zone = tzinfo
#: The rules of a zone by its name in the IANA database; raises UnknownZone.
Zones = Callable[[str], Zone]


def utc_only(name: str) -> Zone:
    """The one zone that needs no database."""
    if name != "UTC":
        raise UnknownZone(
            f"Time zone {name} is not known here; without a time zone database there is UTC alone"
        )
    return UTC
