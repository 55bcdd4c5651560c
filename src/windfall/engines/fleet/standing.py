"""How a machine stands: one table of what its provider says and what the link to its agent shows.

The link decides whether a machine is lost: an agent that answers has its jobs, whatever a provider says. A provider can
only make a machine doubtful, or shorten the wait for one whose agent has fallen silent. Pure: silence comes as seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Provider(StrEnum):
    """What the side that a machine comes from says about it: the list of hosts, or a cluster."""

    LISTED = "listed"
    #: It is to go: nothing new is placed there, and what runs may have a deadline.
    DRAINING = "draining"
    #: It is not among its provider's machines any more.
    GONE = "gone"
    #: The provider itself does not answer.
    SILENT = "silent"


class Link(StrEnum):
    """What the link to a machine's agent shows."""

    #: The agent was heard a moment ago.
    UP = "up"
    #: It has said nothing for too long to give it new work.
    QUIET = "quiet"
    #: It has said nothing for so long that its jobs go on elsewhere.
    DEAD = "dead"


class Standing(StrEnum):
    """What may be done with a machine."""

    READY = "ready"
    #: It is to go: nothing new is placed there.
    NOTICED = "noticed"
    #: Nothing new is placed there until its agent answers again; what runs is waited for.
    DOUBTED = "doubted"
    #: Its instances are gone. It may come back as a machine without instances.
    LOST = "lost"


_STANDINGS: dict[tuple[Provider, Link], Standing] = {
    (Provider.LISTED, Link.UP): Standing.READY,
    (Provider.LISTED, Link.QUIET): Standing.DOUBTED,
    (Provider.LISTED, Link.DEAD): Standing.LOST,
    (Provider.DRAINING, Link.UP): Standing.NOTICED,
    (Provider.DRAINING, Link.QUIET): Standing.DOUBTED,
    (Provider.DRAINING, Link.DEAD): Standing.LOST,
    # The agent answers, so its jobs are left to end; two witnesses against it are enough.
    (Provider.GONE, Link.UP): Standing.DOUBTED,
    (Provider.GONE, Link.QUIET): Standing.LOST,
    (Provider.GONE, Link.DEAD): Standing.LOST,
    # A provider that is away knows nothing that the link does not.
    (Provider.SILENT, Link.UP): Standing.READY,
    (Provider.SILENT, Link.QUIET): Standing.DOUBTED,
    (Provider.SILENT, Link.DEAD): Standing.LOST,
}


@dataclass(frozen=True, slots=True)
class Silence:
    """After how many seconds without a word from an agent what happens."""

    #: Nothing new is placed on its machine.
    doubt_after_s: float = 10.0
    #: It is logged.
    tell_after_s: float = 60.0
    #: Its jobs go on elsewhere.
    lose_after_s: float = 300.0

    def link(self, silent_s: float) -> Link:
        """What a silence of this many seconds means."""
        if silent_s >= self.lose_after_s:
            return Link.DEAD
        return Link.QUIET if silent_s >= self.doubt_after_s else Link.UP


def standing_of(provider: Provider, link: Link, *, must_wait: bool = False) -> Standing:
    """How a machine stands; `must_wait`: whether attempts there have until the end of the silence to stop."""
    if must_wait and link is Link.QUIET:
        return Standing.DOUBTED
    return _STANDINGS[provider, link]


def why_closed(name: str, provider: Provider, standing: Standing, trouble: str | None) -> str | None:
    """Why nothing new is placed on a machine, for people; None where something may be.

    Has no numbers that grow: it is said again only when something else is true.
    """
    if standing is Standing.READY:
        return None
    if standing is Standing.NOTICED:
        return f"{name} is being drained"
    if provider is Provider.GONE and standing is Standing.DOUBTED:
        return f"{name} is not among its provider's machines any more; its jobs are left to end"
    silent = (
        "has not answered for too long and counts as lost" if standing is Standing.LOST else "does not answer"
    )
    return f"{name} {silent}" + (f": {trouble}" if trouble else "")
