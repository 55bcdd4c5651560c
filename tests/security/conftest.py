"""Two real daemons to attack: one of root, whose jobs are other users, and one of an ordinary user."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.conftest import require_part
from tests.security.attacked import Attacked
from tests.tidy.tree import ROOT

NOBODY = 65534
OPTIONS = ("--vcpus", "16", "--memory-mib", "65536", "--gpus", "none")
#: A Python that another user can run; a virtual environment below root's home is not.
PUBLIC_PYTHON = "/usr/bin/python3"


def a_root_daemon() -> RunningWindfall:
    """A daemon of root, or of whoever runs the tests where that is somebody else."""
    return RunningWindfall(*OPTIONS)


def an_ordinary_daemon() -> RunningWindfall:
    """A daemon of an ordinary user, with a sandbox for its jobs."""
    require_part(shutil.which("bwrap") is not None, "bubblewrap is not installed")
    running = RunningWindfall(*OPTIONS)
    if os.geteuid() != 0:
        return running
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", PUBLIC_PYTHON]
    packages = Path(site.getsitepackages()[0])
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}
    probe = subprocess.run(
        [*drop, "-m", "windfall.cli", "--help"],
        env={**os.environ, **environment},
        capture_output=True,
        cwd="/",
        check=False,
    )
    if probe.returncode != 0:
        running.close()
        pytest.skip("another user cannot run Python with this repository's packages here")
    running.root.chmod(0o777)
    running.command = [*drop, "-m", "windfall.cli"]
    running.extra_environment = {**environment, "HOME": str(running.root)}
    return running


DAEMONS: dict[str, Callable[[], RunningWindfall]] = {"root": a_root_daemon, "ordinary": an_ordinary_daemon}


@pytest.fixture(scope="module", params=DAEMONS)
def attacked(request: pytest.FixtureRequest) -> Iterator[Attacked]:
    """A daemon that the attacks of one module share, of root and of an ordinary user in turn."""
    if request.param == "root":
        require_part(os.geteuid() == 0, "a daemon of root needs root")
    running = DAEMONS[request.param]()
    try:
        yield Attacked(running.up(), is_root=request.param == "root")
    finally:
        running.close()
