"""What happens to the hosts in one round: blows, each at a moment, and what undoes it. Drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: After so many seconds of silence the daemon takes a host for lost. It is the shortest time that the setting allows.
LOST_AFTER_S = 20
#: What is done, and for how many seconds at least and at most until it is undone.
BLOWS = {
    "kill agent": (0.0, 0.0),
    "kill daemon": (0.0, 3.0),
    "reboot": (0.0, 1.0),
    "kill host": (LOST_AFTER_S + 4.0, LOST_AFTER_S + 8.0),
    "short cut": (2.0, 6.0),
    "long cut": (LOST_AFTER_S + 4.0, LOST_AFTER_S + 10.0),
    "drain": (2.0, 8.0),
}
#: These are not done to a host.
EVERYWHERE = frozenset({"kill daemon", "kill bridge", "kill head"})
#: After these an attempt may be lost. After the others none may.
LOSING = {"reboot", "kill host", "long cut"}


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing that is done to a host, or to the daemon."""

    what: str
    host: int
    #: Seconds since the jobs were submitted.
    at_s: float
    lasts_s: float

    @property
    def words(self) -> str:
        """What is done, to which host, and when."""
        where = "" if self.what in EVERYWHERE else f" {self.host}"
        return f"{self.what}{where} at {self.at_s:.1f} s"


def draw(
    seed: int, hosts: Sequence[int], kinds: Mapping[str, tuple[float, float]] | None = None
) -> list[Blow]:
    """The blows of one round in the order of their moments: two to four, often two at once."""
    chosen, kinds = random.Random(seed), kinds or BLOWS
    blows, at_s, turn = [], chosen.uniform(0.5, 5.0), 0
    for _ in range(chosen.randint(2, 4)):
        what = chosen.choice(list(kinds))
        # Another host than last time: the end of one blow would often be the end of both.
        turn = (turn + chosen.randrange(1, len(hosts))) % len(hosts)
        blows.append(Blow(what, hosts[turn], at_s, chosen.uniform(*kinds[what])))
        at_s += chosen.choice((0.0, chosen.uniform(0.2, 2.0), chosen.uniform(1.0, 6.0)))
    return blows
