"""requirements.lock pins everything that pyproject.toml asks for, and names no host or path."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.tidy.tree import ROOT, Violation, report

PIN = re.compile(r"(?P<name>[a-z0-9-]+)==[0-9a-z.+!]+(?: ; .+)?")


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_faults(lock: str, wanted: list[str]) -> Iterator[Violation]:
    """Lines that are no plain pin, and dependencies that have none."""
    pinned = set()
    for number, line in enumerate(lock.splitlines(), start=1):
        match = PIN.fullmatch(line)
        if match:
            pinned.add(match["name"])
        elif line and not line.startswith("#"):
            yield Violation(f"requirements.lock:{number}", f"{line!r} is no plain pin", "Run `make lock`")
    for requirement in wanted:
        name = normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
        if name not in pinned:
            yield Violation("requirements.lock", f"{name} is not pinned", "Run `make lock`")


def test_the_lock_covers_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [
        r for extra in project["optional-dependencies"].values() for r in extra
    ]
    found = list(lock_faults((ROOT / "requirements.lock").read_text(encoding="utf-8"), wanted))
    assert not found, report(found)


@pytest.mark.parametrize("lock", ["", "click>=8\n", "click @ https://host/click.whl\n", "-i x\n", "-e .\n"])
def test_a_fault_is_found(lock):
    assert any("Run `make lock`" in str(v) for v in lock_faults(lock, ["click[x]>=8.5,<9"]))


def test_pins_pass():
    lock = "# a comment\nclick==8.5.1\npsycopg-binary==3.3.8 ; implementation_name != 'pypy'\n"
    assert list(lock_faults(lock, ["click>=8", "psycopg_binary"])) == []
