"""`windfall bench gpu --pack N`: the same N small tasks in four ways, and what starting a process for each costs.

N jobs; one array, a process for each child; one array whose children share a warm worker; one job that does them all.
Each way is timed from the first SubmitJob until the last of its jobs has stopped. Must not know how a task is done.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from windfall.cli.bench.running import Job, JobRunner, failed, with_threads
from windfall.cli.bench.sending import Python, command
from windfall.cli.bench.wording import seconds, times
from windfall.cli.errors import CliError, RequestRefused
from windfall.cli.submitting import JobRequest
from windfall.cli.tables import Column, heading, print_table

WORKER_TAGS = {"windfall:worker": "lines"}
_TOLD = re.compile(r"task (\d+): ")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the tasks and how long it took; None with a reason where it could not be taken."""

    name: str
    wall_s: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Packing:
    """The four ways over the same tasks."""

    tasks: int
    library: str
    device: str
    ways: tuple[Way, ...]

    def saved(self, way: Way) -> float | None:
        """How many times as fast as a job for each task."""
        base = self.ways[0].wall_s
        return None if base is None or way.wall_s is None else base / way.wall_s

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "tasks": self.tasks,
            "library": self.library,
            "device": self.device,
            "ways": [{"name": way.name, "wallS": way.wall_s, "reason": way.reason} for way in self.ways],
        }


class Packer:
    """Runs the four ways one after another."""

    def __init__(
        self,
        runner: JobRunner,
        python: Python,
        library: str,
        device: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runner = runner
        self._python = python
        self._library = library
        self._device = device
        self._clock = clock

    def run(self, tasks: int, tell: Callable[[str], None]) -> Packing:
        """Take all four ways; a way that the daemon refuses is told with its reason."""
        ways = []
        for name, take in (
            ("a job for each task", self._jobs),
            ("an array, a process for each", self._cold_array),
            ("an array, a warm worker", self._warm_array),
            ("one job for all", self._one_job),
        ):
            tell(f"{tasks} tasks: {name}")
            ways.append(self._timed(name, take, tasks))
        return Packing(tasks, self._library, self._device, tuple(ways))

    def _timed(self, name: str, take: Callable[[int], Sequence[Job]], tasks: int) -> Way:
        begun = self._clock()
        try:
            jobs = take(tasks)
        except RequestRefused as refusal:
            return Way(name, None, str(refusal))
        wrong = [job for job in jobs if job["status"] != "SUCCEEDED"]
        if wrong:
            return Way(name, None, str(failed(wrong[0])))
        done = tasks_done(line for job in jobs for line in self._runner.lines(job))
        if done != list(range(tasks)):
            return Way(name, None, f"only {len(set(done))} of {tasks} tasks were done; read their logs")
        return Way(name, max(job["stoppedAt"] for job in jobs) / 1000 - begun)

    def _jobs(self, tasks: int) -> Sequence[Job]:
        ids = [self._runner.submit(self._wanted("task", first=number)) for number in range(tasks)]
        return [self._runner.finish(job_id) for job_id in ids]

    def _cold_array(self, tasks: int) -> Sequence[Job]:
        return self._array(self._wanted("task", array=tasks), tasks, {})

    def _warm_array(self, tasks: int) -> Sequence[Job]:
        return self._array(self._wanted("lines", array=tasks), tasks, WORKER_TAGS)

    def _one_job(self, tasks: int) -> Sequence[Job]:
        return [self._runner.finish(self._runner.submit(self._wanted("task", count=tasks)))]

    def _array(self, wanted: JobRequest, tasks: int, tags: dict[str, str]) -> Sequence[Job]:
        array_id = self._runner.submit(wanted, tags)
        self._runner.finish(array_id)
        return self._runner.children_ends(array_id, tasks)

    def _wanted(self, what: str, first: int = 0, count: int = 1, array: int | None = None) -> JobRequest:
        on_gpu = self._device == "gpu"
        arguments = ["--device", self._device, "--libraries", self._library]
        arguments += ["--first", str(first), "--count", str(count)]
        return with_threads(
            JobRequest(
                command(self._python, what, *arguments),
                memory_mib=6144 if on_gpu else 1024,
                gpus=1 if on_gpu else 0,
                array=array,
                name="bench-gpu-pack",
            )
        )


def tasks_done(lines: Iterable[str]) -> list[int]:
    """The numbers of the tasks in logs, in order: a job that succeeded may still have done nothing."""
    return sorted(int(match[1]) for line in lines if (match := _TOLD.match(line)))


def print_packing(packing: Packing) -> None:
    """The table, and the reason of each way that could not be taken."""
    heading(
        f"{packing.tasks} tasks, each a product of 512 x 512 with {packing.library} on the {packing.device.upper()}"
    )
    columns = [
        Column("WAY"),
        Column("IN ALL", right=True),
        Column("A TASK", right=True),
        Column("AGAINST A JOB EACH", right=True),
    ]
    if any(way.reason for way in packing.ways):
        columns.append(Column("NOTE", shrinks=True))
    print_table(
        columns,
        [
            [
                way.name,
                seconds(way.wall_s),
                seconds(None if way.wall_s is None else way.wall_s / packing.tasks),
                times(packing.saved(way)),
                way.reason,
            ][: len(columns)]
            for way in packing.ways
        ],
    )
    if all(way.wall_s is None for way in packing.ways):
        raise CliError("none of the ways could be taken; see the notes above")
