"""Recorded availability, one value every ten minutes, and what a pool of several zones looks like to a policy."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windfall.deadlines.market import PROBE_S, SHORT_S, Stretch, state_of


@dataclass(frozen=True, slots=True)
class Trace:
    """One zone: whether its capacity could be had at each probe."""

    name: str
    up: tuple[bool, ...]


def read_trace(path: Path, nodes: int = 1) -> Trace:
    """A file of the public form: the number of nodes that could be had at each of its ticks."""
    content = json.loads(path.read_text())
    gap_s, counts = float(content["metadata"]["gap_seconds"]), content["data"]
    probes = int(len(counts) * gap_s / PROBE_S)
    up = tuple(counts[int(probe * PROBE_S / gap_s)] >= nodes for probe in range(probes))
    return Trace(path.stem.removesuffix("_v100_1"), up)


def synthetic_traces(seed: int, zones: int, days: int) -> list[Trace]:
    """Zones whose times up and outages are short at first and then long, as the recorded ones are; from a seed."""
    made = []
    for zone in range(zones):
        draw = random.Random(f"{seed} {zone}")
        up, values = draw.random() < 0.5, []
        while len(values) < days * 144:
            median = 5.0 if up else 4.0
            values += [up] * max(1, round(draw.lognormvariate(0, 1.7) * median))
            up = not up
        made.append(Trace(f"synthetic-{zone}", tuple(values[: days * 144])))
    return made


@dataclass(frozen=True, slots=True)
class PoolTrack:
    """What a policy sees of some zones at each probe when it uses the one that has been up longest."""

    name: str
    zones: tuple[Trace, ...]
    #: The zone, or None when all are down.
    zone: tuple[int | None, ...]
    #: The state of the market, as windfall.deadlines numbers them.
    state: tuple[int, ...]
    history: tuple[Stretch, ...]


def track(name: str, zones: Sequence[Trace]) -> PoolTrack:
    """Follow the zone that has been up longest."""
    length = min(len(zone.up) for zone in zones)
    ages = [0] * len(zones)
    chosen: list[int | None] = []
    states, history = [], []
    last = {True: SHORT_S, False: SHORT_S}
    began, began_age = 0, 0.0
    for probe in range(length):
        ages = [age + 1 if zone.up[probe] else 0 for age, zone in zip(ages, zones, strict=True)]
        before = chosen[-1] if chosen else None
        best = max(range(len(zones)), key=lambda number: (ages[number], number == before))
        now = best if ages[best] else None
        if chosen and now != before:
            ended = Stretch(
                before is not None,
                (probe - began) * PROBE_S,
                hopped=before is not None and now is not None,
                age_s=began_age,
            )
            history.append(ended)
            if not ended.hopped:
                last[ended.up] = ended.age_s + ended.seconds
            began, began_age = probe, (ages[best] - 1) * PROBE_S if ended.hopped else 0.0
        chosen.append(now)
        seconds = (probe - began) * PROBE_S + began_age
        states.append(
            state_of(up=now is not None, seconds=seconds, last_up_s=last[True], last_down_s=last[False])
        )
    history.append(Stretch(chosen[-1] is not None, (length - began) * PROBE_S, ended=False, age_s=began_age))
    return PoolTrack(name, tuple(zones), tuple(chosen), tuple(states), tuple(history))


def cut(trace: Trace, begin: float, end: float) -> Trace:
    """A part of a trace, by shares of its length."""
    length = len(trace.up)
    return Trace(trace.name, trace.up[int(length * begin) : int(length * end)])
