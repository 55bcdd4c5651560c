"""The daemon as systemd runs it: started by the unit's own command, stopped alone, started again, and jobs go on."""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until


class Played:
    """What systemd does for a unit with KillMode=process and Type=notify."""

    def __init__(self, windfall: RunningWindfall) -> None:
        printed = windfall.windfall(
            "service",
            "install",
            "--print",
            "--data",
            str(windfall.data),
            "--",
            "--port",
            "0",
            "--gpus",
            "none",
        ).stdout
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(printed)
        assert parser["Service"]["KillMode"] == "process"
        assert parser["Service"]["Type"] == "notify"
        self._command = shlex.split(parser["Service"]["ExecStart"])
        self._windfall = windfall
        self._ready = windfall.root / "notify"

    def start(self) -> subprocess.Popen[str]:
        """Start it in a session of its own, and wait for its word."""
        self._ready.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.bind(str(self._ready))
            listening.settimeout(60)
            # As a service has it: no terminal, and nothing of a user's environment but the path.
            environment = {
                "PATH": os.environ["PATH"],
                "NOTIFY_SOCKET": str(self._ready),
                "WINDFALL_RUNTIME": "process",
            }
            with self._windfall.log.open("a") as log:
                daemon = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    text=True,
                    env=environment,
                    cwd="/",
                    start_new_session=True,
                )
            assert listening.recv(100) == b"READY=1"
        self._windfall.process = daemon
        self._windfall.url = (self._windfall.data / "address").read_text().strip()
        return daemon

    def stop(self, daemon: subprocess.Popen[str]) -> None:
        """As KillMode=process does it: the main process and no other."""
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0


def test_a_job_goes_on_over_restarts_of_the_service():
    windfall = RunningWindfall()
    try:
        service = Played(windfall)
        daemon = service.start()
        batch = a_queue(windfall)
        go = windfall.root / "go"
        a_definition(
            batch, "waits", "sh", "-c", f"echo begun; while ! test -e {go}; do sleep 0.1; done; echo done"
        )
        job = batch.submit_job(jobName="waits", jobQueue="q", jobDefinition="waits")["jobId"]
        windfall.wait_for([job], "RUNNING")
        agent = windfall.agent_pids()
        for _ in range(2):
            service.stop(daemon)
            assert windfall.agent_pids() == agent
            daemon = service.start()
            windfall.wait_for([job], "RUNNING")
        go.touch()
        (ended,) = windfall.wait_for([job])
        assert (ended["status"], len(ended["attempts"])) == ("SUCCEEDED", 1)
        assert windfall.windfall("logs", job).stdout.split() == ["begun", "done"]
        # No process that the daemon started could speak to systemd in its name.
        for pid in windfall.agent_pids().values():
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert (windfall.windfall("service", "status", "--name", "not-there", check=False)).returncode == 1
        wait_until(lambda: "windfall is listening" in windfall.log.read_text(), "its words in the log")
    finally:
        windfall.close()


def test_the_command_of_a_unit_works_from_anywhere(tmp_path):
    """Also where `windfall` is started as a module, which has no script of its own in the way."""
    done = subprocess.run(
        [sys.executable, "-m", "windfall.cli", "service", "install", "--print"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(done.stdout)
    command = shlex.split(parser["Service"]["ExecStart"])
    program = command[: command.index("up")]
    shown = subprocess.run(
        [*program, "--version"], capture_output=True, text=True, check=True, cwd="/", env={}
    )
    assert shown.stdout.startswith("windfall ")
