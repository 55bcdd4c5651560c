"""`python -m tests.flaky --rounds N [FILE ...]`: which tests fail now and then, and what each failure left behind.

A round runs every file once, some files at a time. Its seed decides which files run together, the order of the tests
within a module, and Python's hash seed. What a failed slice printed, with the ends of its daemons' and agents' logs, is
kept in build/flaky/ beside a table of the rounds; the last line there is the command that ran it.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.flaky.order import VARIABLE
from tests.tidy.tree import ROOT

KEPT = ROOT / "build" / "flaky"
FOLDERS = ("tests/acceptance", "tests/security")
#: What pytest answers when every test passed or was skipped, and when some failed.
PASSED, FAILED = 0, 1


@dataclass(slots=True)
class Counted:
    """What the rounds of one file came to."""

    rounds: int = 0
    tests: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


class Rounds:
    """The files, how often each was run, and what failed."""

    def __init__(self, files: Sequence[str], jobs: str) -> None:
        self.counts = {file: Counted() for file in files}
        self.jobs = jobs
        self.broken: list[str] = []
        self._began = time.monotonic()

    def run_slice(self, seed: int, number: int, files: Sequence[str]) -> None:
        """Run some files together; what they printed is kept if one failed."""
        name = f"{seed}-{number}"
        report, printed = KEPT / f"{name}.xml", KEPT / f"{name}.txt"
        command = [sys.executable, "-m", "pytest", "-p", "tests.flaky.order", "-p", "no:cacheprovider"]
        command += ["-n", self.jobs, "--dist", "worksteal", f"--junit-xml={report}", *files]
        seeds = {VARIABLE: str(seed), "PYTHONHASHSEED": str(seed)}
        with printed.open("w") as output:
            status = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **seeds},
                cwd=ROOT,
                check=False,
            ).returncode
            output.write(shlex.join(f"{name}={value}" for name, value in seeds.items()))
            output.write(f" {shlex.join(command)}\n")
        if status in (PASSED, FAILED):
            self._count(report, printed)
            for file in files:
                self.counts[file].rounds += 1
        else:
            self.broken.append(f"pytest ended with {status}: {printed}")
        report.unlink(missing_ok=True)
        if status == PASSED:
            printed.unlink()

    def _count(self, report: Path, printed: Path) -> None:
        for case in ET.parse(report).iter("testcase"):
            module = str(case.get("classname"))
            counted = next(
                self.counts[file] for file in self.counts if f"{module}.".startswith(_prefix(file))
            )
            counted.tests += 1
            counted.seconds += float(case.get("time", "0"))
            counted.skipped += case.find("skipped") is not None
            if case.find("failure") is not None or case.find("error") is not None:
                counted.failures.append(f"{case.get('name')}: {printed}")

    def table(self) -> str:
        """The rounds of each file with the seconds that its tests took, then each failure with its output."""
        width = max(map(len, self.counts), default=4)
        lines = [f"{'file':<{width}}  rounds  tests  skipped  failed  s/round"]
        for file, counted in self.counts.items():
            each = counted.seconds / max(counted.rounds, 1)
            lines.append(
                f"{file:<{width}}  {counted.rounds:6}  {counted.tests:5}  {counted.skipped:7}"
                f"  {len(counted.failures):6}  {each:7.1f}"
            )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        took, busy = time.monotonic() - self._began, used.ru_utime + used.ru_stime
        lines.append(
            f"{took / 60:.0f} minutes, {busy / 60:.0f} of processor time; load now {os.getloadavg()[0]:.1f}"
        )
        lines += [f"{file}: {text}" for file, counted in self.counts.items() for text in counted.failures]
        return "\n".join([*lines, *self.broken])

    @property
    def failed(self) -> bool:
        """Whether any test failed in any round."""
        return bool(self.broken) or any(counted.failures for counted in self.counts.values())


def _prefix(file: str) -> str:
    """How the names of the classes and tests of a file begin in a report."""
    return f"{file.removesuffix('.py').replace('/', '.')}."


def slices(files: Sequence[str], seed: int, size: int) -> Iterator[list[str]]:
    """The files of a round in an order of its own, some at a time."""
    shuffled = random.Random(seed).sample(files, len(files))
    for start in range(0, len(shuffled), size):
        yield shuffled[start : start + size]


def main() -> int:
    """Run the rounds; the exit code says whether every test passed in each."""
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description=__doc__)
    parser.add_argument("files", nargs="*", help=f"test files or folders (default: {' '.join(FOLDERS)})")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; round k has seed + k")
    parser.add_argument("--jobs", default="2", help="tests at once, as pytest's -n")
    parser.add_argument("--slice", type=int, default=8, help="files at a time")
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    chosen = [ROOT / file for file in given.files or FOLDERS]
    paths = [path for it in chosen for path in (sorted(it.rglob("test_*.py")) if it.is_dir() else [it])]
    rounds = Rounds([str(path.relative_to(ROOT)) for path in paths], given.jobs)
    try:
        for seed in range(given.seed, given.seed + given.rounds):
            for number, files in enumerate(slices(list(rounds.counts), seed, given.slice)):
                rounds.run_slice(seed, number, files)
                (KEPT / "table.txt").write_text(rounds.table() + "\n")
    except KeyboardInterrupt:
        print("stopped; what ran until then:")
    print(rounds.table())
    return 1 if rounds.failed else 0


if __name__ == "__main__":
    sys.exit(main())
