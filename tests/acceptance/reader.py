"""A reader who types what a page says into a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.daemon import RunningWindfall


def typed(running: RunningWindfall, place: Path, script: str) -> str:
    """What a shell prints that stops at the first failure; `windfall` in it means this daemon's."""
    binaries = place / "bin"
    binaries.mkdir(exist_ok=True)
    (binaries / "windfall").write_text(f'#!/bin/sh\nexec {sys.executable} -m windfall.cli "$@"\n')
    (binaries / "windfall").chmod(0o755)
    path = f"{binaries}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "WINDFALL_DATA": str(running.data), "PATH": path, "AWS_PAGER": ""}
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        env=environment | {"PYTHON": sys.executable},
        cwd=place,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{running.log.read_text()}"
    return done.stdout
