"""README's lines as a newcomer types them: the script is interrupted, resumes, and its weights are there at the end.

As the daemon's own user, as a user without root, as root, and as a user of root's daemon.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.test_without_root import NOBODY, PYTHON
from tests.docs.pages import FENCE
from tests.tidy.tree import ROOT
from tests.waiting import wait_until

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: An account that every machine has, with files that nobody else may enter.
DAEMON = 1
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]


@dataclass
class Newcomer:
    """Somebody in a directory, with a shell and a daemon to talk to."""

    running: RunningWindfall
    place: Path
    variables: dict[str, str]
    #: Stands before each command, to run it as another user.
    prefix: list[str] = field(default_factory=list)

    def start(self, line: str) -> subprocess.Popen[str]:
        """Type a line, and do not wait for it."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*self.prefix, "bash", "-c", line],
            env=self.variables,
            cwd=self.place,
            text=True,
            stdout=pipe,
            stderr=pipe,
        )

    def type(self, line: str) -> str:
        """Type a line that must succeed; the answer is all that it prints."""
        process = self.start(line)
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, f"{line}\n{out}\n{err}\n{self.running.log.read_text()[-2000:]}"
        return out + err


def lines() -> list[str]:
    """The shell lines of the section that runs a script."""
    section = README.partition("## Run your script")[2].partition("\n## ")[0]
    return [line for fence in FENCE.finditer(section) if fence[2] == "sh" for line in fence[3].splitlines()]


def script() -> str:
    (found,) = [fence[3] for fence in FENCE.finditer(README) if fence[2] == "python"]
    return found


def a_place(uid: int, mode: int) -> Path:
    place = Path(tempfile.mkdtemp(prefix="windfall-readme-", dir="/var/tmp"))
    (place / "train.py").write_text(script())
    (place / "bin").mkdir()
    for path in (place, place / "train.py", place / "bin"):
        os.chown(path, uid, -1)
    place.chmod(mode)
    return place


def variables_of(place: Path, python: str, **more: str) -> dict[str, str]:
    """A shell with `python` and `windfall` on its PATH, as an active virtual environment has them."""
    for name, words in {"windfall": f"{python} -m windfall.cli", "python": python}.items():
        (place / "bin" / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (place / "bin" / name).chmod(0o755)
    packages = Path(importlib.util.find_spec("torch").origin).parents[1]
    kept = {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}
    return {
        **kept,
        "HOME": str(place),
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'src'}:{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
    }


def as_user(uid: int) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def is_able(variables: dict[str, str], uid: int) -> bool:
    """Whether another user can run the system's Python with the packages of this one."""
    probe = [*as_user(uid), PYTHON, "-c", "import torch, windfall.cli"]
    return subprocess.run(probe, env=variables, capture_output=True, cwd="/", check=False).returncode == 0


def the_user_itself() -> Newcomer:
    """Jobs run as the user who runs the tests, with the Python of the tests."""
    place = a_place(os.getuid(), 0o755)
    running = RunningWindfall("--gpus", "none", "--job-user", "root" if os.geteuid() == 0 else "nobody").up()
    variables = variables_of(place, sys.executable, WINDFALL_DATA=str(running.data))
    return Newcomer(running, place, variables)


def a_user_without_root() -> Newcomer:
    """The daemon and everything else is an ordinary user's."""
    place = a_place(NOBODY, 0o700)
    variables = variables_of(place, PYTHON)
    running = RunningWindfall("--gpus", "none")
    running.root.chmod(0o777)
    running.command = [*as_user(NOBODY), PYTHON, "-m", "windfall.cli"]
    running.extra_environment = variables
    newcomer = Newcomer(running, place, {**variables, "WINDFALL_DATA": str(running.data)}, as_user(NOBODY))
    if is_able(variables, NOBODY):
        running.up()
    return newcomer


def root() -> Newcomer:
    """The daemon is root's, whose jobs run as nobody, in a directory that everybody may write."""
    place = a_place(0, 0o777)
    running = RunningWindfall("--gpus", "none").up()
    return Newcomer(running, place, variables_of(place, PYTHON, WINDFALL_DATA=str(running.data)))


def a_user_of_roots_daemon() -> Newcomer:
    """A key is mapped to the user, whose directory is closed to everybody else."""
    place = a_place(DAEMON, 0o700)
    running = RunningWindfall("--gpus", "none").up()
    # The queues are made with an admin key.
    for options in ([], ["--spot"]):
        running.windfall("run", *options, "--", "true", cwd=Path("/usr"))
    key = json.loads(
        running.windfall("keys", "create", "--role", "submit", "--user", "daemon", "--json").stdout
    )
    variables = variables_of(
        place,
        PYTHON,
        AWS_ENDPOINT_URL_BATCH=running.url,
        AWS_ACCESS_KEY_ID=key["accessKeyId"],
        AWS_SECRET_ACCESS_KEY=key["secretAccessKey"],
        AWS_REGION="us-east-1",
    )
    return Newcomer(running, place, variables, as_user(DAEMON))


@pytest.fixture(params=[the_user_itself, a_user_without_root, root, a_user_of_roots_daemon])
def newcomer(request, require) -> Iterator[Newcomer]:
    form: Callable[[], Newcomer] = request.param
    if form is not the_user_itself:
        require(os.geteuid() == 0, "only root can become another user for this test")
        require(shutil.which("setpriv") is not None, "setpriv is not installed")
    found = form()
    try:
        if form is not the_user_itself and not is_able(found.variables, NOBODY):
            pytest.skip("another user cannot run Python with this repository's packages here")
        yield found
    finally:
        found.running.close()
        shutil.rmtree(found.place)


def test_the_readme_is_two_screens_long():
    assert len(README.splitlines()) <= 100


def test_a_script_is_interrupted_resumes_and_leaves_its_weights(newcomer):
    up, *typed = lines()
    assert up == "windfall up"
    training = None
    for line in typed:
        if "--spot" in line:
            training = newcomer.start(line)
            wait_until(
                lambda: "at step" in newcomer.type("windfall describe train || true"), "the first steps", 150
            )
            continue
        printed = newcomer.type(line)
        if "hello" in line:
            assert "hello\n" in printed
        if "interrupt" in line:
            out, err = training.communicate(timeout=200)
            assert training.returncode == 0, f"{out}\n{err}"
            (taken,) = re.findall(r"taken away at step ([\d,]+); saved: step \1 ", err)
            assert f"resumed at step {taken} on " in err
    assert (newcomer.place / "model.pt").is_file()
    assert any((newcomer.place / "train" / "checkpoint").iterdir())
