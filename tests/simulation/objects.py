"""A simulated object store with what jobs keep of their work, and the fence against superseded attempts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.store import BrokenPromise
from windfall.control.instructions import StartAttempt
from windfall.jobs.ids import AttemptToken
from windfall.jobs.staging import Mark


@dataclass(slots=True)
class Work:
    """What one attempt is doing: a job is done when it has worked for so long in all."""

    uri: str
    fence: int
    began_at: int
    needed_ms: int
    #: What earlier attempts have done, and this one began with.
    done_ms: int
    restored: Mark | None

    @property
    def left_ms(self) -> int:
        """How long it has to work until it is done."""
        return max(0, self.needed_ms - self.done_ms)


@dataclass(slots=True)
class Objects:
    """What is kept, by prefix."""

    fences: dict[str, int] = field(default_factory=dict)
    newest: dict[str, AttemptToken] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)
    #: Which job has which prefix; two jobs that had the same id one after the other are two.
    owners: dict[str, str] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)

    def restore(self, start: StartAttempt, now: int, run_ms: int) -> Work:
        """Begin an attempt with the newest that is kept; it must be newer than all before it, at the same prefix."""
        assert start.staging is not None
        assert start.staging.checkpoints is not None
        job_id, _, number = start.token.rpartition("#")
        place, life = start.staging.checkpoints, f"{job_id} of {number.partition('.')[2]}"
        # Several hosts share a prefix, each with a part of its own.
        uri = place.uri if place.writers == 1 else f"{place.uri}#{place.writer}"
        if self.prefixes.setdefault(life, uri) != uri or self.owners.setdefault(uri, life) != life:
            raise BrokenPromise(f"{start.token} was given {uri}, which is not its own")
        # An agent may have lost all memory of an attempt, and is asked for it again.
        if start.fence <= self.fences.get(uri, -1) and self.newest[uri] != start.token:
            raise BrokenPromise(
                f"{start.token} has fence {start.fence}, and {self.fences[uri]} was there before"
            )
        self.fences[uri], self.newest[uri] = start.fence, start.token
        mark = self.marks.get(uri)
        done_ms = mark.step or 0 if mark is not None else 0
        return Work(uri, start.fence, now, self.needed.setdefault(uri, run_ms), done_ms, mark)

    def commit(self, work: Work, now: int) -> Mark:
        """Keep what an attempt has done until now; less than what is kept already would be work undone."""
        if work.fence < self.fences[work.uri]:
            raise BrokenPromise(
                f"an attempt with fence {work.fence} writes to {work.uri} after {self.fences}"
            )
        done_ms = work.done_ms + now - work.began_at
        known = self.marks.get(work.uri)
        if known is not None and (known.step or 0) > done_ms:
            raise BrokenPromise(f"{work.uri} goes back from {known.step} to {done_ms}")
        mark = self.marks[work.uri] = Mark(f"step-{done_ms}", now, now, 1, done_ms)
        return mark
