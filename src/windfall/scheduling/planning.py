"""One snapshot in, one plan out: placements, launches, terminations and reservations.

The same function serves the daemon, the simulation and the tests. It changes nothing and remembers nothing.
"""

from __future__ import annotations

from windfall.scheduling.assign import assign
from windfall.scheduling.scale import launches, terminations
from windfall.scheduling.snapshot import Plan, Snapshot


def plan(snapshot: Snapshot) -> Plan:
    """Decide what to do now."""
    assignment = assign(snapshot)
    # Launches come first: they count on all instances, and what they do not use may be terminated afterwards.
    launched = launches(assignment)
    return Plan(
        placements=tuple(assignment.placements),
        launches=launched,
        terminations=terminations(assignment),
        reservations=tuple(assignment.reservations),
        reclaims=tuple(assignment.claims.reclaims),
        claims=tuple(
            reservation for places in assignment.claims.all() for reservation in places.reservations
        ),
    )
