"""A real daemon for an example: started on a free port, and stopped with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from windfall.cli.client import Client
from windfall.cli.endpoint import find_endpoint

#: What `make demo` starts: a simulated spot market.
SIMULATED = ("--engine", "simulated")
SIMULATED_PACE = {"WINDFALL_SIMULATED_BOOT_S": "1.5", "WINDFALL_SIMULATED_NOTICE_S": "8"}
#: How long the daemon and its jobs may take to stop before they are killed.
STOP_WITHIN_S = 30.0


class Daemon:
    """`windfall up` with a data directory of its own."""

    def __init__(
        self,
        data: Path,
        options: Sequence[str] = SIMULATED,
        variables: Mapping[str, str] = SIMULATED_PACE,
    ) -> None:
        self.data, self.options, self.variables = data, options, variables
        self.process: subprocess.Popen[str] | None = None
        self.listens = False

    def up(self) -> Client:
        """Start it and wait until it listens."""
        options = ["--port", "0", *self.options]
        if os.geteuid() == 0:
            # The demo's own files are root's. A daemon of another user runs all jobs as that user.
            options += ["--job-user", "root"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windfall.cli", "up", "--data", str(self.data), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.variables},
            # Ctrl-C is for the demo alone, which then stops the daemon with its jobs.
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        if "listening" not in self.process.stdout.readline():
            sys.exit(f"the daemon did not start:\n{self.process.stderr.read()}")
        self.listens = True
        return Client(find_endpoint(self.data))

    def down(self) -> None:
        """Stop it with everything that it started, at whichever moment of its life."""
        if self.process is not None:
            if self.listens:
                command = [sys.executable, "-m", "windfall.cli", "down", "--kill", "--data", str(self.data)]
                subprocess.run(command, capture_output=True, check=False, start_new_session=True)
            else:
                self.process.terminate()
            try:
                self.process.communicate(timeout=STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
        until = time.monotonic() + STOP_WITHIN_S
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """What runs with the data directory among its arguments or in its environment: agents, wardens and jobs."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if os.fsencode(self.data) in told:
                        found.append(int(entry.name))
        return found
