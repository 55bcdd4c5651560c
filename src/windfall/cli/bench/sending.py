"""Which Python the benchmark's jobs run under, and how the program gets there: as a zip inside of the command.

Jobs run as another user who may reach neither this package nor this user's environment, so nothing of ours is
expected there but a Python with numpy. Must not talk to the daemon.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib import resources

from windfall.cli.bench.suite.libraries import CPU_LIBRARIES, GPU_LIBRARIES
from windfall.cli.errors import BadUsage, CliError

PACKAGE = "windfall.cli.bench.suite"
MINIMUM = (3, 10)
#: Unpacks the program, imports all of it, and leaves no file behind.
LOADER = (
    "import base64,os,sys,tempfile;"
    "handle,path=tempfile.mkstemp('.zip');"
    "os.write(handle,base64.b64decode(sys.argv[1]));os.close(handle);"
    "sys.path.insert(0,path);"
    f"from {PACKAGE}.program import main;"
    "os.unlink(path);sys.path.remove(path);"
    "sys.exit(main(sys.argv[2:]))"
)
_PROBE = (
    "import importlib.util as u,json,sys;"
    "print(json.dumps([sys.version_info[:2],"
    "[n for n in ('numpy','torch','cupy','jax') if u.find_spec(n)]]))"
)
_PROBE_TIMEOUT_S = 60
#: As jobs have it: nothing of this user's shell may make a module appear that a job will not find.
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter and which of the libraries it has."""

    executable: str
    libraries: tuple[str, ...]

    def chosen(self, wanted: tuple[str, ...], offered: tuple[str, ...]) -> list[str]:
        """The libraries of `offered` that are here, and of those the wanted ones if any are named."""
        return [name for name in offered if name in self.libraries and (not wanted or name in wanted)]


def find_python(named: str | None, *, for_gpu: bool) -> Python:
    """The interpreter to measure with: the named one, else the first with numpy and, if of use, a GPU library."""
    if named is not None:
        python = look_into(named)
        if python is None:
            raise BadUsage(f"--python {named} is not Python {_version(MINIMUM)} or newer; name another")
        if "numpy" not in python.libraries:
            raise CliError(
                f"{named} has no numpy, which the benchmark needs; install it there, or name another --python"
            )
        return python
    places = dict.fromkeys(
        place for place in (sys.executable, shutil.which("python3"), "/usr/bin/python3") if place
    )
    usable = [python for place in places if (python := look_into(place)) and "numpy" in python.libraries]
    fit = [python for python in usable if not for_gpu or python.chosen((), GPU_LIBRARIES)]
    if not usable:
        raise CliError(
            f"no Python with numpy was found (looked at {', '.join(places)}); "
            "name one that jobs may run with --python PATH"
        )
    return (fit or usable)[0]


def look_into(executable: str) -> Python | None:
    """What an interpreter has, asked without importing it; None where it does not answer or is too old."""
    try:
        answer = subprocess.run(
            [executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            env=_ENVIRONMENT,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
        version, libraries = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    place = shutil.which(executable) or executable
    return Python(place, tuple(libraries)) if tuple(version) >= MINIMUM else None


def command(python: Python, *arguments: str) -> tuple[str, ...]:
    """The job's command: the interpreter, the loader, the program, and what it shall do."""
    return (python.executable, "-c", LOADER, packed_program(), *arguments)


def packed_program() -> str:
    """All modules of the program as a zip in base64; the packages above it come along empty."""
    buffer = io.BytesIO()
    folder = PACKAGE.replace(".", "/")
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        above = PACKAGE.split(".")[:-1]
        for depth in range(1, len(above) + 1):
            archive.writestr(_entry("/".join([*above[:depth], "__init__.py"])), "")
        for module in sorted(resources.files(PACKAGE).iterdir(), key=lambda module_file: module_file.name):
            if module.name.endswith(".py"):
                archive.writestr(_entry(f"{folder}/{module.name}"), module.read_bytes())
    return base64.b64encode(buffer.getvalue()).decode()


def check_frameworks(wanted: tuple[str, ...], python: Python) -> None:
    """Refuse a library that was named and is not there."""
    names = dict.fromkeys([*CPU_LIBRARIES, *GPU_LIBRARIES])
    for name in wanted:
        if name not in names:
            raise BadUsage(f"--frameworks {name} is not known; choose from {', '.join(names)}")
        if name not in python.libraries:
            raise CliError(f"{python.executable} has no {name}; install it there, or name another --python")


def _entry(path: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(path)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _version(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)
