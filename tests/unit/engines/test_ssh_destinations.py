"""What is taken as a host, and what ssh's words become."""

from __future__ import annotations

import pytest

from windfall.engines.hosts.destinations import (
    BadDestination,
    check_directory,
    check_python,
    name_of,
    parse_destination,
)
from windfall.engines.hosts.ssh import Ssh
from windfall.engines.hosts.ssh_errors import explain


@pytest.mark.parametrize(
    ("text", "arguments", "name"),
    [
        ("gpu1", ["gpu1"], "gpu1"),
        ("alice@gpu3.example.com", ["-l", "alice", "gpu3.example.com"], "gpu3.example.com"),
        ("alice@10.0.0.7:2222", ["-p", "2222", "-l", "alice", "10.0.0.7"], "10.0.0.7"),
        ("[fe80::1%eth0]:22", ["-p", "22", "fe80::1%eth0"], "fe80--1-eth0"),
    ],
)
def test_a_destination_is_read_and_written(text: str, arguments: list[str], name: str) -> None:
    destination = parse_destination(text)
    assert destination.arguments == arguments
    assert parse_destination(destination.text) == destination
    assert name_of(destination) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-oProxyCommand=touch /tmp/x",
        "-l@gpu1",
        "alice@-gpu1",
        "gpu1;reboot",
        "gpu1 gpu2",
        "$(id)@gpu1",
        "gpu1\nHost *",
        "gpu1:",
        "gpu1:0",
        "gpu1:99999",
        "gpu1:٣",
        "[gpu1]:22",
        "ssh://gpu1",
        "a@b@c d",
        "gpü1",
        "x" * 300,
    ],
)
def test_a_text_that_a_shell_or_ssh_could_misread_is_refused(text: str) -> None:
    with pytest.raises(BadDestination, match="is not a host"):
        parse_destination(text)


def test_paths_and_programs_of_a_host_are_plain() -> None:
    assert check_python("python3.12") == "python3.12"
    assert check_python("/opt/py/bin/python3") == "/opt/py/bin/python3"
    assert check_directory("/scratch/windfall/") == "/scratch/windfall"
    for bad in ("python3 -c x", "-c", "$PY", "../python", "a'b", ""):
        with pytest.raises(BadDestination):
            check_python(bad)
    for bad in ("scratch", "/a/../etc", "/a b", "/a;b", "~", "/", "/é"):
        with pytest.raises(BadDestination):
            check_directory(bad)


def test_the_command_line_asks_nobody_and_trusts_no_new_key(tmp_path: object) -> None:
    command = Ssh(str(tmp_path), "/my/config").command(parse_destination("alice@gpu1:23"), "exec true")
    assert command[:3] == ["ssh", "-F", "/my/config"]
    assert "BatchMode=yes" in command
    assert not any("StrictHostKeyChecking" in part for part in command)
    assert command[-7:] == ["-p", "23", "-l", "alice", "--", "gpu1", "exec true"]


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (255, "Host key verification failed.\r\n", "run `ssh gpu1 true` once as that user"),
        (255, "@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@", "ssh-keygen -R gpu1"),
        (255, "alice@gpu1: Permission denied (publickey).", "ssh-copy-id gpu1"),
        (255, "ssh: connect to host gpu1 port 22: No route to host", "switched on"),
        (255, "ssh: Could not resolve hostname gpu1: Name or service not known", "~/.ssh/config"),
        (255, "ssh: connect to host gpu1 port 22: Connection refused", "sshd"),
        (255, "", "try `ssh gpu1 true`"),
        (1, "Permission denied", "ended with 1"),
        (70, "\x1b[2Jhello\x07", "[2Jhello"),
    ],
)
def test_what_ssh_says_becomes_what_to_do(status: int, said: str, words: str) -> None:
    text = explain(parse_destination("gpu1"), status, said)
    assert words in text
    assert text.isprintable()


def test_the_command_to_try_uses_the_configuration_that_the_daemon_uses() -> None:
    text = explain(parse_destination("gpu1"), 255, "Host key verification failed.", "/my/config")
    assert "`ssh -F /my/config gpu1 true`" in text
