"""Which processes are a session's, and that all of them are ended and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid

from windfall.agent.processes import EXEC_VARIABLE, variables_of

#: The keeper, as a process of its own: what descends from it is the session's. One process of the command leaves its
#: session, one does not listen to signals, and one of the mark is nobody's child.
KEEPER = """
import json, os, subprocess, sys, time
from windfall.agent.inside.marking import end_processes, processes_of
from windfall.agent.processes import EXEC_VARIABLE, read_stat

session = sys.argv[1]
script = "trap '' TERM HUP; setsid sleep 611 & sleep 612 & echo ready; wait"
marked = {**os.environ, EXEC_VARIABLE: session}
command = subprocess.Popen(["sh", "-c", script], env=marked, start_new_session=True, stdout=subprocess.PIPE)
assert command.stdout.readline() == b"ready\\n"
started = read_stat(command.pid).start_ticks
before = processes_of(session, (command.pid, started))
as_another = processes_of(session, (os.getppid(), 1))
ended = end_processes(session, (command.pid, started), os.kill)
print(json.dumps({
    "has the command": command.pid in before,
    "has its keeper": os.getpid() in before,
    "has others": sorted(as_another - before),
    "ended": ended,
    "left": sorted(processes_of(session, None)),
}))
command.wait()
"""


def test_all_processes_of_a_session_end_and_no_others():
    session = uuid.uuid4().hex
    # Nearly the same mark, and not below the keeper.
    with subprocess.Popen(["sleep", "613"], env={**os.environ, EXEC_VARIABLE: f"{session}0"}) as stranger:
        orphan = f"{EXEC_VARIABLE}={session} setsid sleep 614 >/dev/null 2>&1 & echo $!"
        pid = int(subprocess.run(["sh", "-c", orphan], check=True, capture_output=True).stdout)
        done = subprocess.run(
            [sys.executable, "-c", KEEPER, session], check=True, capture_output=True, timeout=60
        )
        assert json.loads(done.stdout) == {
            "has the command": True,
            "has its keeper": False,
            "has others": [],
            "ended": True,
            "left": [],
        }
        assert stranger.poll() is None
        stranger.kill()
    assert f"{EXEC_VARIABLE}={session}".encode() not in variables_of(pid)
