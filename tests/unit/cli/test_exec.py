"""What `windfall exec` asks for; the acceptance tests run it at a real terminal against a real daemon."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from windfall.agent.inside.frames import ERRORS, OUTPUT, STARTED, ended, frame
from windfall.cli import exec_session

JOB = "0b4c7c1e-1111-4222-8333-444455556666"


@pytest.fixture
def served(daemon) -> Any:
    """A daemon in which every command writes something and ends with 3."""
    whole = frame(STARTED) + frame(OUTPUT, b"out\n") + frame(ERRORS, b"err\n") + ended(3)
    daemon.answers |= {
        "FindJobs": {"jobIds": [JOB]},
        "StartExec": {"session": "x"},
        "ReadExec": lambda params: whole[params["position"] :][:7],
        "WriteExec": lambda params: {
            "position": params["position"] + len(base64.b64decode(params["content"]))
        },
        "EndExec": {},
    }
    return daemon


@pytest.mark.parametrize(
    ("arguments", "job", "command"),
    [
        (["train"], JOB, None),
        (["train", "--", "ls", "-l"], JOB, ["ls", "-l"]),
        (["train", "ls", "-l", "--node", "--", "-h"], JOB, ["ls", "-l", "--node", "--", "-h"]),
        (["--node", "2", "-T", "train", "ls", "-l"], f"{JOB}#2", ["ls", "-l"]),
        (["train", "--node=2", "--", "ls"], f"{JOB}#2", ["ls"]),
        ([f"{JOB}:4", "ls"], f"{JOB}:4", ["ls"]),
    ],
)
def test_what_is_run_and_where(served, windfall, arguments, job, command):
    assert windfall("exec", *arguments).code == 3
    (asked,) = served.params_of("StartExec")
    assert (asked["jobId"], asked.get("command"), asked["tty"]) == (job, command, False)
    assert served.params_of("EndExec") == [{"session": asked["session"]}]


def test_a_node_is_named_once(served, windfall):
    done = windfall("exec", "--node", "1", f"{JOB}#2")
    assert (done.code, served.params_of("StartExec")) == (2, [])
    assert "leave --node out" in done.err


def test_what_the_daemon_says_of_the_end_is_shown(served, windfall):
    served.answers["ReadExec"] = lambda params: ended(None, "the job has ended")[params["position"] :]
    done = windfall("exec", "train", "--", "ls")
    assert (done.code, f"{JOB}: the job has ended" in done.err) == (1, True)


def test_input_that_was_not_taken_is_sent_again_from_there(served, windfall, monkeypatch):
    arrived, whole = bytearray(), bytes(range(256)) * 20

    def take(params: dict[str, Any]) -> dict[str, int]:
        content = base64.b64decode(params["content"])
        assert params["position"] == len(arrived)
        arrived.extend(content[:1000])  # As much as there is room for.
        return {"position": len(arrived)}

    def write(params: dict[str, Any]) -> bytes:
        said = frame(STARTED) + (ended(0) if len(arrived) == len(whole) else b"")
        return said[params["position"] :]

    served.answers |= {"WriteExec": take, "ReadExec": write}
    stdin, feed = os.pipe()
    monkeypatch.setattr(exec_session, "_STDIN", stdin)
    try:
        os.write(feed, whole)
        os.close(feed)
        assert windfall("exec", "-T", "train", "--", "cat").code == 0
    finally:
        os.close(stdin)
    assert bytes(arrived) == whole
