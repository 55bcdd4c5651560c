"""A daemon and an agent of this version go on from what the release before left, while its job runs.

`recorded/0.1.0` has the store (as SQL) and the journal of a daemon of that release, with a finished and a running
job. A real process stands for the running one.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall

RECORDED = Path(__file__).parent / "recorded"
FINISHED, RUNNING = "b41f39fd-925a-45bf-8805-48b18d86812d", "ed84bd3a-0061-4282-a80a-450d7494e9b4"
IDENTITY = "54ef5bc547584f70b0ea412a48cf745a"


def start_ticks(pid: int) -> str:
    """When a process began, as the kernel counts it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def laid_out(windfall: RunningWindfall, release: Path, pid: int) -> None:
    """Make the data directory that the release left, with this process as its running attempt."""
    for folder in ("store", "agent", "logs"):
        (windfall.data / folder).mkdir(parents=True, mode=0o700)
    exchanged = {
        "@ROOT@": str(windfall.root),
        "@BOOT_ID@": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "@PID@": str(pid),
        "@TICKS@": start_ticks(pid),
    }

    def filled(name: str) -> str:
        text = (release / name).read_text()
        for mark, value in exchanged.items():
            text = text.replace(mark, value)
        return text

    store = windfall.data / "store" / "windfall.db"
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript(filled("store.sql"))
    (windfall.data / "store-identity.json").write_text(
        json.dumps({"identity": IDENTITY, "where": str(store)})
    )
    (windfall.data / "agent" / "journal").write_text(filled("journal"))


@pytest.mark.parametrize("release", sorted(RECORDED.iterdir()), ids=lambda path: path.name)
def test_what_an_earlier_release_left_goes_on(release):
    # Finished jobs of the record are older than those that are usually kept.
    options = ("--gpus", "none", "--vcpus", "2", "--memory-mib", "4096", "--retention-days", "36500")
    windfall = RunningWindfall(*options)
    go = windfall.root / "go"
    played = subprocess.Popen(
        ["sh", "-c", f"while ! test -e {go}; do sleep 0.1; done"], start_new_session=True, cwd="/"
    )
    try:
        laid_out(windfall, release, played.pid)
        windfall.up()
        finished, running = windfall.wait_for([FINISHED, RUNNING], "SUCCEEDED", "RUNNING")
        assert (finished["jobName"], finished["status"]) == ("done", "SUCCEEDED")
        assert (running["jobName"], running["status"]) == ("waits", "RUNNING")
        assert windfall.windfall("jobs", "--all").stdout.count("windfall") >= 2
        # New jobs run beside it, and a restart of daemon and agent loses neither.
        assert windfall.windfall("run", "--clean", "--", "echo", "new").stdout == "new\n"
        windfall.kill_daemon()
        windfall.kill_agent()
        windfall.up()
        windfall.wait_for([RUNNING], "RUNNING")
        assert played.poll() is None
        go.touch()
        assert played.wait(60) == 0
        (ended,) = windfall.wait_for([RUNNING])
        # Kernels before 6.15 do not tell how a process ended whose parent is somebody else.
        assert ended["status"] in ("SUCCEEDED", "FAILED")
        assert [attempt["startedAt"] for attempt in ended["attempts"]] == [running["startedAt"]]
    finally:
        played.kill()
        played.wait()
        windfall.close()
