"""`make demo` interrupted with Ctrl-C, at every moment: nothing of it is left, and it says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
#: What runs in the background may have been started with Ctrl-C ignored; the demo must not inherit that here.
COMMAND = ["env", "--default-signal=INT", sys.executable, str(DEMO)]


def having(word: str) -> list[str]:
    """The command lines of all processes that have a word among their arguments or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                arguments = (entry / "cmdline").read_bytes()
                if word.encode() in arguments + (entry / "environ").read_bytes():
                    found.append(arguments.replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


MOMENTS = {
    "a directory": os.path.isdir,
    "a daemon": lambda data: any("windfall.cli up" in line for line in having(data)),
    "an agent": lambda data: any("warden.py" in line for line in having(data)),
    "an address": lambda data: (Path(data) / "address").exists(),
    "a training": lambda data: any("train.py" in line for line in having(data)),
}


@pytest.mark.parametrize(
    ("moment", "number"), [*((moment, signal.SIGINT) for moment in MOMENTS), ("a training", signal.SIGTERM)]
)
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, moment: str, number: signal.Signals):
    with (tmp_path / "said").open("wb") as said:
        (tmp_path / "tmp").mkdir()
        demo = subprocess.Popen(
            COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            start_new_session=True,  # a process group of its own, as a shell gives it
        )

    def reached() -> str:
        assert demo.poll() is None, (tmp_path / "said").read_text()
        data = next((str(path) for path in (tmp_path / "tmp").glob("windfall-demo-*")), "")
        return data if data and MOMENTS[moment](data) else ""

    try:
        data = wait_until(reached, moment)
        os.killpg(demo.pid, number)
        assert demo.wait(120) == 130
    finally:
        demo.kill()
        demo.wait()
    text = (tmp_path / "said").read_text()
    assert "nothing of the demo runs any more, and its data directory is removed" in " ".join(text.split())
    assert "Traceback" not in text
    assert having(data) == []
    assert not Path(data).exists()


def test_a_second_ctrl_c_does_not_keep_the_demo_from_cleaning_up(tmp_path: Path):
    with (tmp_path / "said").open("wb") as said:
        (tmp_path / "tmp").mkdir()
        demo = subprocess.Popen(
            COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    try:
        wait_until(lambda: list((tmp_path / "tmp").glob("windfall-demo-*/address")), "a daemon that listens")
        os.killpg(demo.pid, signal.SIGINT)
        wait_until(lambda: "interrupted" in (tmp_path / "said").read_text(), "it has heard")
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.wait(120) == 130
    finally:
        demo.kill()
        demo.wait()
    assert not list((tmp_path / "tmp").iterdir())
