"""Four ways to run small tasks: what is timed, and that a way that did nothing is no way."""

from __future__ import annotations

import pytest

from windfall.cli.bench.packing import Packer, Packing, Way, print_packing, tasks_done
from windfall.cli.bench.sending import Python
from windfall.cli.errors import CliError, RequestRefused

WAYS = ["a job for each task", "an array, a process for each", "an array, a warm worker", "one job for all"]


class FakeRunner:
    """Jobs that take a second each; `idle` ones succeed without doing a task."""

    def __init__(self, *, refuses=(), idle=(), fails=()):
        self.submitted = []
        self._refuses, self._idle, self._fails = refuses, idle, fails

    def submit(self, wanted, tags=None):
        if any(tag in self._refuses for tag in tags or {}):
            raise RequestRefused("ClientException", "no worker for this array")
        self.submitted.append((wanted, tags))
        return f"job-{len(self.submitted) - 1}"

    def finish(self, job_id, hear=None):
        number = int(job_id.partition("-")[2])
        wanted = self.submitted[number][0]
        first, count = (
            int(wanted.command[wanted.command.index(name) + 1]) for name in ("--first", "--count")
        )
        return self._job(job_id, list(range(first, first + count)), wanted.command[4])

    def children_ends(self, array_id, size):
        wanted = self.submitted[int(array_id.partition("-")[2])][0]
        return [self._job(f"{array_id}:{index}", [index], wanted.command[4]) for index in range(size)]

    def lines(self, job):
        return job["lines"]

    def _job(self, job_id, tasks, what):
        return {
            "jobId": job_id,
            "jobName": "bench-gpu-pack",
            "status": "FAILED" if what in self._fails else "SUCCEEDED",
            "stoppedAt": 1_003_000,
            "lines": [] if what in self._idle else [f"task {task}: 1.0" for task in tasks],
        }


def packed(runner, tasks=3, device="cpu"):
    packer = Packer(runner, Python("python3", ("numpy",)), "numpy", device, clock=lambda: 1000.0)
    return packer.run(tasks, lambda _: None)


def test_all_four_ways_do_the_same_tasks():
    runner = FakeRunner()
    packing = packed(runner)
    assert [way.name for way in packing.ways] == WAYS
    assert [way.wall_s for way in packing.ways] == [3.0] * 4
    assert [wanted.array for wanted, _ in runner.submitted] == [None, None, None, 3, 3, None]
    assert runner.submitted[4][1] == {"windfall:worker": "lines"}


def test_a_task_on_a_gpu_asks_for_one():
    runner = FakeRunner()
    packed(runner, device="gpu")
    assert {wanted.gpus for wanted, _ in runner.submitted} == {1}


def test_a_refused_way_is_told_with_its_reason():
    warm = packed(FakeRunner(refuses=("windfall:worker",))).ways[2]
    assert (warm.wall_s, warm.reason) == (None, "no worker for this array")


def test_jobs_that_did_no_task_are_not_timed():
    warm = packed(FakeRunner(idle=("lines",))).ways[2]
    assert (warm.wall_s, warm.reason) == (None, "only 0 of 3 tasks were done; read their logs")


def test_a_failed_job_is_not_timed():
    warm = packed(FakeRunner(fails=("lines",))).ways[2]
    assert warm.wall_s is None
    assert "windfall logs job-4:0" in warm.reason


def test_tasks_are_read_from_logs():
    assert tasks_done(["task 2: 1.0", "a warning", "task 0: 1.0"]) == [0, 2]


def test_the_table_has_what_a_task_costs_and_what_was_saved(capsys):
    ways = (Way("a job for each task", 8.0), Way("one job for all", 0.5))
    print_packing(Packing(4, "torch", "gpu", ways))
    printed = capsys.readouterr().out
    assert "4 tasks, each a product of 512 x 512 with torch on the GPU" in printed
    assert "125 ms" in printed
    assert "16.0x" in printed


def test_no_way_at_all_is_an_error():
    with pytest.raises(CliError, match="none of the ways"):
        print_packing(Packing(4, "torch", "gpu", (Way("one job for all", None, "refused"),)))
