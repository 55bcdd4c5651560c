"""`windfall secret`: values come from stdin or a file, and are never seen again."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.unit.cli.fake_daemon import Error
from windfall.jobs.git_credentials import GitCredential, decode_credential

VALUE = "s3cr3t-value"


@pytest.fixture
def says(monkeypatch):
    """`says("text")` is what the next command reads from stdin."""

    def speak(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    return speak


def test_a_value_from_stdin_loses_its_newline(daemon, windfall, says):
    daemon.answers["SetSecret"] = {"name": "token", "replaced": False}
    says(f"{VALUE}\n".encode())
    ran = windfall("secret", "set", "token")
    assert daemon.params_of("SetSecret") == [{"name": "token", "value": VALUE}]
    assert (ran.code, ran.out) == (0, "token is set; jobs that start from now on get it\n")
    assert VALUE not in ran.out + ran.err


def test_a_value_from_a_file_is_kept_as_it_is(daemon, windfall, tmp_path):
    daemon.answers["SetSecret"] = {"name": "key", "replaced": True}
    (tmp_path / "key").write_bytes(b"line\nline\n")
    ran = windfall("secret", "set", "key", "--from-file", str(tmp_path / "key"))
    assert daemon.params_of("SetSecret") == [{"name": "key", "value": "line\nline\n"}]
    assert ran.out == "key is replaced; jobs that start from now on get it\n"


@pytest.mark.parametrize(
    ("text", "words"), [(b"", "the value is empty"), (b"\n", "empty"), (b"\xff", "text in UTF-8")]
)
def test_no_value_is_no_secret(daemon, windfall, says, text, words):
    says(text)
    ran = windfall("secret", "set", "token")
    assert ran.code == 2
    assert words in ran.err
    assert daemon.asked == []


def test_a_file_that_is_not_there(daemon, windfall, tmp_path):
    ran = windfall("secret", "set", "token", "--from-file", str(tmp_path / "none"))
    assert ran.code == 2
    assert "none cannot be read: No such file or directory; name another" in ran.err


def test_a_value_on_the_command_line_is_no_option(daemon, windfall):
    ran = windfall("secret", "set", "token", VALUE)
    assert ran.code == 2
    assert daemon.asked == []


def test_names_are_listed(daemon, windfall):
    daemon.answers["ListSecrets"] = {"secrets": [{"name": "token", "setAt": 0}]}
    ran = windfall("secret", "list")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["NAME", "token"]
    assert json.loads(windfall("secret", "list", "--json").out) == daemon.answers["ListSecrets"]
    daemon.answers["ListSecrets"] = {"secrets": []}
    assert "windfall secret set NAME" in windfall("secret", "list").err


def test_one_is_removed(daemon, windfall):
    daemon.answers["RemoveSecret"] = {}
    assert windfall("secret", "remove", "token").out == "token is removed\n"
    daemon.answers["RemoveSecret"] = Error("NotFound", "There is no secret token.", 404)
    ran = windfall("secret", "remove", "token")
    assert (ran.code, ran.out) == (1, "")
    assert "There is no secret token" in ran.err


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nk3y\n-----END OPENSSH PRIVATE KEY-----\n"


def test_a_token_for_git_from_stdin(daemon, windfall, says):
    daemon.answers["SetSecret"] = {"name": "git@github.com", "replaced": False}
    says(f"{VALUE}\n".encode())
    ran = windfall("secret", "git", "GitHub.com", "--tenant", "lab")
    [asked] = daemon.params_of("SetSecret")
    assert (asked["name"], asked["tenant"]) == ("git@github.com", "lab")
    assert decode_credential(asked["value"]) == GitCredential("x-access-token", VALUE)
    assert ran.out == "git@github.com is set; code that is fetched from now on uses it\n"
    assert VALUE not in ran.out + ran.err


def test_a_token_for_git_from_a_file_with_a_name(daemon, windfall, tmp_path):
    daemon.answers["SetSecret"] = {"name": "git@host:8443", "replaced": True}
    (tmp_path / "token").write_text(f"{VALUE}\n")
    command = ("secret", "git", "host:8443", "--username", "me", "--from-file", str(tmp_path / "token"))
    assert json.loads(windfall(*command, "--json").out) == {"name": "git@host:8443"}
    [asked] = daemon.params_of("SetSecret")
    assert decode_credential(asked["value"]) == GitCredential("me", VALUE)


def test_a_key_for_git(daemon, windfall, tmp_path):
    daemon.answers["SetSecret"] = {"name": "git@host", "replaced": False}
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "hosts").write_text("host ssh-ed25519 AAAA\n")
    command = ("secret", "git", "host:22", "--ssh-key", str(tmp_path / "key"))
    ran = windfall(*command, "--known-hosts", str(tmp_path / "hosts"))
    [asked] = daemon.params_of("SetSecret")
    assert asked["name"] == "git@host"
    assert decode_credential(asked["value"]) == GitCredential(
        ssh_key=KEY, known_hosts="host ssh-ed25519 AAAA\n"
    )
    assert "k3y" not in ran.out + ran.err


def test_a_credential_for_git_is_removed(daemon, windfall):
    daemon.answers["RemoveSecret"] = {}
    assert windfall("secret", "git", "host", "--remove").out == "git@host is removed\n"
    assert daemon.params_of("RemoveSecret") == [{"name": "git@host"}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("https://host",), "is not a host: give a name such as github.com"),
        (("me@host",), "is not a host"),
        (
            ("host", "--ssh-key", "PATH/none"),
            "none cannot be read: No such file or directory; name another with --ssh-key",
        ),
        (("host", "--ssh-key", "PATH/token"), "not an SSH private key"),
        (("host", "--ssh-key", "PATH/token", "--username", "me"), "give a token or a key"),
        (
            ("host", "--from-file", "PATH/token", "--known-hosts", "PATH/token"),
            "--known-hosts goes with --ssh-key",
        ),
        (("host", "--from-file", "PATH/two"), "a token is one word"),
        (("host", VALUE), "unexpected extra argument"),
    ],
)
def test_a_credential_for_git_that_is_none(daemon, windfall, tmp_path, options, words):
    (tmp_path / "token").write_text(VALUE)
    (tmp_path / "two").write_text(f"{VALUE} {VALUE}")
    ran = windfall("secret", "git", *(option.replace("PATH", str(tmp_path)) for option in options))
    assert ran.code == 2
    assert words in ran.err.replace("\n", " ")
    assert VALUE not in ran.err or options == ("host", VALUE)
    assert daemon.asked == []
