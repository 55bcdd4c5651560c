"""`windfall service`: what the unit says, and what systemctl is told."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.cli.service_unit import MARK, Unit, quoted
from windfall.cli.up import tell_supervisor
from windfall.daemon.directory import DataDirectory

#: A systemctl that writes down what it is told.
STUB = r"""#!/bin/sh
echo "$@" >> "{log}"
shown="ActiveState={state}\nSubState=running\nMainPID=7\nUnitFileState=enabled"
case "$*" in *ActiveState*) printf "$shown\n";; esac
case "$*" in *"{refuses}"*) echo "Access denied" >&2; exit 4;; esac
"""


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A user's service manager that is played; the answer is how to change it, and what it was told."""
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path / "data"))
    log = tmp_path / "told"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def play(state: str = "active", refuses: str = "nothing at all") -> None:
        program.write_text(STUB.format(log=log, state=state, refuses=refuses))
        program.chmod(0o755)

    play()
    play.told = lambda: log.read_text().splitlines() if log.exists() else []
    play.unit = tmp_path / "config" / "systemd" / "user" / "windfall.service"
    return play


def settings_of(text: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string(text)
    return {name: value for section in parser.sections() for name, value in parser[section].items()}


def test_only_the_daemon_is_stopped_and_jobs_stay_what_they_are(systemd, windfall):
    printed = windfall("service", "install", "--print", "--", "--port", "9000").out
    assert printed.startswith(MARK)
    says = settings_of(printed)
    assert says["KillMode"] == "process"
    assert (says["Delegate"], says["Restart"], says["OOMPolicy"]) == ("yes", "on-failure", "continue")
    assert not {"PrivateTmp", "ProtectHome", "ProtectSystem", "DynamicUser"} & set(says)
    command = shlex.split(says["ExecStart"])
    assert command[-5:] == ["up", "--data", os.environ["WINDFALL_DATA"], "--port", "9000"]
    assert os.access(command[0], os.X_OK)
    assert (systemd.told(), systemd.unit.exists()) == ([], False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("of_user", [True, False])
def test_systemd_understands_it(tmp_path, of_user):
    file = tmp_path / "odd.service"
    file.write_text(Unit("odd", of_user).text(Path("/var/lib/a b%c$d"), ["--gpus", "none"]))
    scope = ["--user"] if of_user else []
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        ["systemd-analyze", *scope, "verify", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if "Failed to initialize manager" in done.stderr:
        pytest.skip("systemd-analyze cannot work in this environment")
    # Other units of this machine may have faults of their own.
    assert [line for line in done.stderr.splitlines() if "odd.service" in line] == []


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain", "plain"),
        ("a b", '"a b"'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ('say "x"\\', '"say \\"x\\"\\\\"'),
        ("", '""'),
    ],
)
def test_words_are_quoted_as_systemd_reads_them(word, written):
    assert quoted(word) == written


def test_it_is_written_enabled_and_started(systemd, windfall):
    ran = windfall("service", "install")
    assert ran.code == 0, ran.err
    assert f"wrote {systemd.unit}" in ran.out
    assert systemd.told()[-3:] == [
        "--user daemon-reload",
        "--user enable windfall.service",
        "--user restart windfall.service",
    ]
    assert "loginctl enable-linger" in ran.err
    shown = json.loads(windfall("service", "status", "--json").out)
    assert (shown["installed"], shown["ActiveState"], shown["MainPID"]) == (True, "active", "7")
    assert "state     active (running), pid 7" in windfall("service", "status").out
    gone = windfall("service", "uninstall")
    assert "data and jobs that run are untouched" in gone.out
    assert systemd.told()[-2:] == ["--user disable --now windfall.service", "--user daemon-reload"]
    assert not systemd.unit.exists()


def test_where_systemd_does_not_run_the_commands_are_said(systemd, windfall):
    systemd(refuses="show")
    ran = windfall("service", "install")
    assert (ran.code, systemd.unit.exists()) == (0, True)
    assert "systemctl --user daemon-reload && systemctl --user enable windfall.service" in ran.err
    assert windfall("service", "status").code == 1
    assert windfall("service", "uninstall").code == 0


def test_what_systemctl_refuses_is_said_in_its_words(systemd, windfall):
    systemd(refuses="enable")
    ran = windfall("service", "install")
    assert ran.code == 1
    assert "`systemctl --user enable windfall.service` failed: Access denied; look at journalctl" in ran.err


def test_a_unit_of_somebody_else_is_not_touched(systemd, windfall):
    systemd.unit.parent.mkdir(parents=True)
    systemd.unit.write_text("[Service]\nExecStart=/bin/true\n")
    for command in ("install", "uninstall"):
        ran = windfall("service", command)
        assert (ran.code, "choose another name with --name" in ran.err) == (1, True)
    assert systemd.unit.read_text() == "[Service]\nExecStart=/bin/true\n"
    assert windfall("service", "install", "--name", "other").code == 0


def test_a_daemon_that_runs_already_is_named(systemd, windfall, tmp_path):
    systemd(state="inactive")
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    lock = directory.lock()
    ran = windfall("service", "install")
    assert (ran.code, systemd.unit.exists()) == (1, False)
    assert (
        f"a daemon (pid {os.getpid()}) already uses {directory.root}; stop it with `windfall down`" in ran.err
    )
    os.close(lock)
    assert windfall("service", "install").code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--", "--colour", "red"), "No such option"),
        (("--", "--port", "70000"), "port"),
        (("--", "--data", "/x"), "--data stands before"),
        (("--", "--store", "postgresql://u:secret@db/w"), ".pgpass"),
        (("--name", "../x"), "--name"),
        (("--data", "/a\nb"), "line break"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(systemd, windfall, arguments, text):
    ran = windfall("service", "install", *arguments)
    assert (ran.code, systemd.unit.exists()) == (2, False)
    assert text.lower() in ran.err.lower()
    assert "secret" not in ran.err


def test_a_service_that_is_not_there_is_said(systemd, windfall):
    assert "`windfall service install` makes one" in windfall("service", "status").err
    assert "there is no service windfall" in windfall("service", "uninstall").err


def test_variables_that_the_service_does_not_see_are_named(systemd, windfall, monkeypatch, tmp_path):
    monkeypatch.setenv("WINDFALL_REGION", "eu-west-1")
    said = windfall("service", "install").err
    assert (
        f"the service does not see WINDFALL_REGION; set it in {tmp_path / 'data' / 'windfall.toml'}" in said
    )


def test_systemd_is_told_when_requests_are_served(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        tell_supervisor(str(tmp_path / "notify"))
        assert listening.recv(100) == b"READY=1"
    tell_supervisor(str(tmp_path / "gone"))
    tell_supervisor(None)


LOGS = "import logging, sys; from windfall.cli.up import log_with_times; {}; log_with_times(); logging.warning('hello')"
OWN_JOURNAL = "import os; s = os.fstat(2); os.environ['JOURNAL_STREAM'] = f'{s.st_dev}:{s.st_ino}'"


@pytest.mark.parametrize(
    ("before", "line"), [("0", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ hello"), (OWN_JOURNAL, "hello")]
)
def test_lines_of_the_daemon_s_log_have_one_time(before, line):
    done = subprocess.run(
        [sys.executable, "-c", LOGS.format(before)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JOURNAL_STREAM": "1:1"},
    )
    assert re.fullmatch(line, done.stderr.strip())
