"""Tables of best actions for jobs with deadlines, solved one at a time by a process of its own, and kept.

A table takes seconds of processor time, which the loop cannot spare: until it is there, jobs keep their deadlines by
steady progress within the shield. Terms are rounded, so that few tables serve all jobs; the shield stays exact.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import OrderedDict
from dataclasses import dataclass, replace
from math import ceil, log2
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from windfall.deadlines.market import rates_of
from windfall.deadlines.public_prior import public_prior
from windfall.deadlines.solving import PolicyTable, PolicyTerms, solve

log = logging.getLogger(__name__)

#: Each takes about 13 MB.
MOST_TABLES = 4


@dataclass(frozen=True, slots=True)
class _Solving:
    terms: PolicyTerms
    process: BaseProcess
    answer: Connection


class PolicyTables:
    """The tables that have been solved, the one used last at the end; called by the loop's thread."""

    def __init__(self) -> None:
        self._tables: OrderedDict[PolicyTerms, PolicyTable] = OrderedDict()
        self._solving: _Solving | None = None
        self._failed = False

    def __call__(self, terms: PolicyTerms) -> PolicyTable | None:
        """The table for some terms; None if it is not solved yet, which is begun then."""
        wanted = rounded(terms)
        self._take()
        table = self._tables.get(wanted)
        if table is None:
            self._begin(wanted)
            return None
        self._tables.move_to_end(wanted)
        exact = replace(table.terms, changeover_s=terms.changeover_s, shield_s=terms.shield_s)
        return replace(table, terms=exact)

    def _begin(self, wanted: PolicyTerms) -> None:
        if self._solving is not None or self._failed:
            return
        spawn = get_context("spawn")
        answer, far_end = spawn.Pipe(duplex=False)
        # As a daemon of the daemon: it is ended with it, and one that outlives a kill fails to answer.
        process = spawn.Process(target=solve_for, args=(wanted, far_end), daemon=True)
        try:
            process.start()
        except OSError as error:
            self._give_up(str(error))
            return
        far_end.close()
        self._solving = _Solving(wanted, process, answer)

    def _take(self) -> None:
        """Keep a table that has been solved meanwhile."""
        solving = self._solving
        if solving is None or not solving.answer.poll():
            return
        self._solving = None
        try:
            self._tables[solving.terms] = solving.answer.recv()
        except (EOFError, OSError):
            self._give_up(f"its process ended with {solving.process.exitcode}")
        solving.answer.close()
        solving.process.join(timeout=0)
        while len(self._tables) > MOST_TABLES:
            self._tables.popitem(last=False)

    def _give_up(self, reason: str) -> None:
        """Deadlines are kept without tables; trying again at every look would only use up the machine."""
        self._failed = True
        log.warning("no table for deadlines can be solved, steady progress is used instead: %s", reason)


def solve_for(terms: PolicyTerms, answer: Connection) -> None:
    """Solve a table with the public prior; the work of a process of its own."""
    os.nice(19)
    table = solve(rates_of(None, public_prior()), terms)
    with contextlib.suppress(BrokenPipeError):
        answer.send(table)


def rounded(terms: PolicyTerms) -> PolicyTerms:
    """The terms of the table that serves these: the changeover up to a power of two, the price to a tenth."""
    return replace(
        terms,
        changeover_s=_up(terms.changeover_s),
        shield_s=_up(terms.shield_s),
        spot_price=min(0.9, max(0.1, round(terms.spot_price, 1))),
    )


def _up(seconds: float) -> float:
    return float(2 ** ceil(log2(max(1.0, seconds))))
