"""`windfall bench gpu`: measures this machine's CPU and GPU through Batch jobs and says what the figures mean.

Decides which jobs are run and where results go. Never takes a simulated GPU for one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from windfall import __version__
from windfall.cli.bench import published
from windfall.cli.bench.reading import break_evens, rows, sizes
from windfall.cli.bench.results import CPU, GPU, Measurement, Results
from windfall.cli.bench.running import Job, JobRunner, OfferedMachine
from windfall.cli.bench.sending import Python, check_frameworks, command, find_python
from windfall.cli.bench.suite.libraries import CPU_LIBRARIES, GPU_LIBRARIES
from windfall.cli.bench.wording import seconds
from windfall.cli.client import connect
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, print_json, queue_option
from windfall.cli.run import INTERRUPTED
from windfall.cli.submitting import JobRequest

SCHEMA = "windfall-bench-gpu/1"
#: Ten thousand squared three times, images and their temporaries; beside a GPU also CUDA's own and page-locked copies.
CPU_MEMORY_MIB, GPU_MEMORY_MIB, QUICK_MEMORY_MIB = 6144, 16384, 2048
#: A job that moves arrays to a GPU needs no more cores than this.
GPU_JOB_VCPUS = 8
STDOUT = Path("-")


@click.group()
def bench() -> None:
    """Measure this machine's CPU and GPU by jobs that run on it."""


@bench.command()
@click.option("--quick", is_flag=True, help="Small sizes and few samples: under a minute.")
@click.option(
    "--frameworks", metavar="A,B", default="", help="Of numpy, torch, cupy, jax (all that are there)."
)
@click.option("--python", metavar="PATH", help="The Python of the jobs (the first found that has numpy).")
@click.option("--vcpus", type=click.IntRange(min=1), help="vCPUs of the CPU's job (all that are offered).")
@click.option(
    "--pack", type=click.IntRange(2, 10_000), metavar="N", help="Compare ways to run N small tasks."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write all samples; - writes to stdout in place of the tables.",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.svg", help="Draw it.")
@queue_option
@data_option
def gpu(
    quick: bool,
    frameworks: str,
    python: str | None,
    vcpus: int | None,
    pack: int | None,
    json_file: Path | None,
    plot: Path | None,
    queue: str | None,
    data: Path | None,
) -> int:
    """Measure CPU and GPU, and from which size on the GPU wins.

    Matrix products, image operations and a blur: the suite of AWS's article on GPU instances in AWS Batch, with cold
    start, transfer and resident time apart. With --pack N, many small tasks are run in four ways instead.
    """
    if plot is not None and pack is not None:
        raise BadUsage("--pack has nothing to plot; leave --plot away")
    if plot is not None and plot.suffix != ".svg":
        raise BadUsage(f"--plot writes SVG: name a file that ends with .svg, not {plot.name}")
    quiet = json_file == STDOUT
    for file in (None if quiet else json_file, plot):
        check_place(file)
    runner = JobRunner(connect(data), data, queue)
    place = runner.place()
    if vcpus is not None and vcpus > place.vcpus:
        raise BadUsage(f"--vcpus {vcpus} is more than the {place.vcpus} that are offered; ask for fewer")
    wanted = tuple(word.strip() for word in frameworks.split(",") if word.strip())
    used = find_python(python, for_gpu=bool(place.gpus))
    check_frameworks(wanted, used)
    say_what_is_there(place, used, wanted)
    exit_code = 0
    if pack is not None:
        document = _packed(runner, used, wanted, place, pack, quiet=quiet)
    else:
        suite = Suite(runner, used, wanted, place, vcpus or place.vcpus, quick=quick)
        document = suite.run(plot, quiet=quiet)
        exit_code = suite.exit_code
    if quiet:
        print_json(document)
    elif json_file is not None:
        json_file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        note(f"wrote {json_file}")
    return exit_code


def check_place(file: Path | None) -> None:
    """Refuse a file that cannot be written before minutes are spent on what goes into it."""
    if file is not None and not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise BadUsage(f"{file} cannot be written; name another place")


def say_what_is_there(place: OfferedMachine, python: Python, wanted: tuple[str, ...]) -> None:
    """Which Python and which GPU is used, or why none is."""
    note(f"jobs run under {python.executable} with {', '.join(python.libraries)}")
    if place.gpus:
        if not python.chosen(wanted, GPU_LIBRARIES):
            note(
                f"{place.gpus[0]}: no library for it (torch, cupy, jax) is in use; only the CPU is measured."
                " Name a Python that has one with --python"
            )
        return
    also = f" ({place.simulated_gpus} simulated, which compute nothing)" if place.simulated_gpus else ""
    note(f"no real GPU is offered here{also}: only the CPU is measured")


class Suite:
    """One run of the suite: the CPU's job, a job for each GPU library, and what is made of their results."""

    def __init__(
        self,
        runner: JobRunner,
        python: Python,
        wanted: tuple[str, ...],
        place: OfferedMachine,
        vcpus: int,
        *,
        quick: bool,
    ) -> None:
        self._runner = runner
        self._python = python
        self._cpu = python.chosen(wanted, CPU_LIBRARIES) or ["numpy"]
        self._gpu = python.chosen(wanted, GPU_LIBRARIES) if place.gpus else []
        self._place = place
        self._vcpus = vcpus
        self._quick = quick
        self.results = Results()
        self.jobs: list[Job] = []
        self.exit_code = 0

    def run(self, plot: Path | None, *, quiet: bool) -> dict[str, Any]:
        """Measure, print unless `quiet`, draw if asked for; the answer is the JSON document.

        After an interruption it holds what was measured until then; a library that fails does not stop the others.
        """
        started_at = time.time_ns() // 1_000_000
        try:
            with sigterm_as_interrupt():
                self._measure_all()
        except KeyboardInterrupt:
            self.exit_code = INTERRUPTED
            note("interrupted; what was measured until now:")
        if not self.results.measurements:
            raise CliError("nothing was measured; read the job's log with `windfall logs bench-gpu-cpu`")
        if not quiet:
            from windfall.cli.bench.report import print_report

            print_report(self.results)
        if plot is not None:
            self._draw(plot)
        return self._document(started_at)

    def _measure_all(self) -> None:
        self._measure("bench-gpu-cpu", CPU, self._cpu)
        for number, library in enumerate(self._gpu):
            # What the machine can do at best need not be found out by each library again.
            brief = ["--brief"] if number else []
            try:
                measured = self._measure(f"bench-gpu-{library}", GPU, [library], *brief)
            except CliError as error:
                self.exit_code = 1
                self.results.forget(GPU, library)
                note(str(error))
                continue
            if not measured:
                note(
                    f"{library} sees no GPU (is it a build for the CPU?) and is left out{self._why(library)}"
                )

    def _measure(self, name: str, device: str, libraries: list[str], *more: str) -> bool:
        on_gpu = device == GPU
        vcpus = min(self._vcpus, GPU_JOB_VCPUS) if on_gpu else self._vcpus
        memory_mib = GPU_MEMORY_MIB if on_gpu else QUICK_MEMORY_MIB if self._quick else CPU_MEMORY_MIB
        arguments = ["--device", device, "--libraries", ",".join(libraries), "--threads", str(vcpus)]
        request = JobRequest(
            command(self._python, "measure", *arguments, *more, *(["--quick"] if self._quick else [])),
            vcpus=vcpus,
            memory_mib=min(memory_mib, self._place.memory_mib),
            gpus=1 if on_gpu else 0,
            name=name,
        )
        job = self._runner.measure(request, self._hear)
        if job is not None:
            self.jobs.append(job)
        return job is not None

    def _why(self, library: str) -> str:
        error = self.results.fact(GPU, "import_error", library)
        return f": it cannot be imported: {error}" if error else ""

    def _hear(self, lines: list[str]) -> None:
        for measurement in self.results.read(lines):
            if measurement.measure == "resident":
                note(progress_line(measurement))

    def _draw(self, plot: Path) -> None:
        from windfall.cli.bench.plot import draw

        library = next(iter(self.results.gpu_libraries()), None)
        model = self.results.fact(GPU, "gpu") or "no GPU"
        machine = self.results.fact(CPU, "machine") or {}
        title = f"{machine.get('cpu', 'CPU')}, {machine.get('threads')} threads, and {model}"
        products = sizes(self.results, library) if library else rows(self.results, None)
        products = [product for product in products if product.operation.flops]
        plot.write_text(draw(products, title), encoding="utf-8")
        note(f"drew {plot}")

    def _document(self, started_at: int) -> dict[str, Any]:
        libraries = self.results.gpu_libraries()
        return {
            "schema": SCHEMA,
            "windfall": __version__,
            "startedAt": started_at,
            "quick": self._quick,
            "complete": self.exit_code == 0,
            "vcpus": self._vcpus,
            "gpus": list(self._place.gpus),
            "python": self._python.executable,
            "jobs": [
                {name: job.get(name) for name in ("jobId", "jobName", "startedAt", "stoppedAt")}
                for job in self.jobs
            ],
            **self.results.document(),
            "breakEven": [
                {
                    "library": library,
                    "mode": str(break_even.mode),
                    "edge": break_even.edge,
                    "note": break_even.note,
                }
                for library in libraries
                for break_even in break_evens(self.results, library)
            ],
            "published": [
                {"operation": row.operation.name, "cpuS": row.cpu_s, "gpuS": row.gpu_s}
                for row in published.TABLE
            ],
        }


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, so that a time limit loses nothing that was measured."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def progress_line(measurement: Measurement) -> str:
    """A measurement as a line of progress."""
    precision = "" if measurement.precision == "fp32" else f" in {measurement.precision.upper()}"
    what = f"{measurement.device} {measurement.library}: {measurement.operation.name}{precision}"
    return f"{what} {seconds(measurement.typical_s)}"


def _packed(
    runner: JobRunner,
    python: Python,
    wanted: tuple[str, ...],
    place: OfferedMachine,
    tasks: int,
    *,
    quiet: bool,
) -> dict[str, Any]:
    from windfall.cli.bench.packing import Packer, print_packing

    on_gpu = python.chosen(wanted, GPU_LIBRARIES) if place.gpus else []
    libraries = on_gpu or python.chosen(wanted, CPU_LIBRARIES) or ["numpy"]
    packing = Packer(runner, python, libraries[0], GPU if on_gpu else CPU).run(tasks, note)
    if not quiet:
        print_packing(packing)
    return {"schema": SCHEMA, "windfall": __version__, "gpus": list(place.gpus), "pack": packing.document()}
