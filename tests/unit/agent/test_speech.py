"""Lines of the agent's log have their time, and a large log is put aside without a line lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ windfall agent: (.*)")
#: Says numbered lines with a small bound, from two processes at the same time.
TALKS = """
import os, sys
from windfall.agent import speech
speech.LOG_BYTES_MAX = 4000
speech.LOGS_KEPT = 1000
other = os.fork()
for number in range(300):
    speech.say(f"{'child' if other == 0 else 'parent'} {number}")
if other:
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
else:
    os._exit(0)
"""


def run(program: str, log: Path) -> None:
    with log.open("ab") as opened:
        subprocess.run([sys.executable, "-c", program], stdout=opened, stderr=opened, check=True)


def said(folder: Path) -> list[str]:
    lines = []
    for file in folder.glob("agent.log*"):
        for line in file.read_text().splitlines():
            match = LINE.fullmatch(line)
            assert match, line
            lines.append(match[1])
    return lines


def test_two_processes_that_speak_at_once_lose_no_line(tmp_path):
    run(TALKS, tmp_path / "agent.log")
    expected = [f"{who} {number}" for who in ("child", "parent") for number in range(300)]
    assert sorted(said(tmp_path)) == sorted(expected)
    assert (tmp_path / "agent.log.2").exists()
    assert (tmp_path / "agent.log").stat().st_mode & 0o777 == (
        tmp_path / "agent.log.1"
    ).stat().st_mode & 0o777


def test_only_a_few_are_kept(tmp_path):
    run(
        TALKS.replace("LOGS_KEPT = 1000", "LOGS_KEPT = 2")
        .replace("os.fork()", "1")
        .replace("if other:", "if 0:")
        .replace("else:\n    os._exit(0)", ""),
        tmp_path / "agent.log",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.log", "agent.log.1", "agent.log.2"]
    newest = (tmp_path / "agent.log").read_text() or (tmp_path / "agent.log.1").read_text()
    assert newest.splitlines()[-1].endswith("parent 299")


def test_what_is_no_log_of_ours_is_left_alone(tmp_path):
    """A terminal, a pipe, a file that somebody named otherwise."""
    run(TALKS, tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    done = subprocess.run([sys.executable, "-c", TALKS], stderr=subprocess.PIPE, text=True, check=True)
    assert len(done.stderr.splitlines()) == 600


def test_a_process_that_may_not_open_the_new_log_goes_on_in_the_old_one(tmp_path):
    log = tmp_path / "agent.log"
    program = (
        "import os\nfrom windfall.agent import speech\nos.rename({0!r}, {0!r} + '.1')\nspeech.say('hello')\n"
    )
    run(program.format(str(log)), log)
    assert said(tmp_path) == ["hello"]
    assert [path.name for path in tmp_path.iterdir()] == ["agent.log.1"]


def test_a_name_that_a_job_chose_is_one_line_without_escapes(tmp_path):
    name = "esc\x1b[2J\n2026-01-01T00:00:00Z windfall agent: cannot serve: forged\u2028x\x9bé"
    log = tmp_path / "agent.log"
    run(f"from windfall.agent.speech import say; say({name!r})", log)
    assert said(tmp_path) == [
        r"esc\x1b[2J\n2026-01-01T00:00:00Z windfall agent: cannot serve: forged\u2028x\x9bé"
    ]
