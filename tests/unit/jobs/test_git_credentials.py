"""Which credential an address may use, and what one is."""

from __future__ import annotations

import json

import pytest

from windfall.agent.secrets import MissingSecret, secret_values
from windfall.jobs.containers import Secret, secret_file
from windfall.jobs.git_credentials import (
    SIZE_MAX_BYTES,
    BadCredential,
    GitCredential,
    checked_host,
    credential_file,
    credential_of,
    decode_credential,
    encode_credential,
    host_of,
    is_credential_name,
)
from windfall.jobs.git_urls import carries_secret

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nk3y\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://GitHub.com/team/code.git", "github.com"),
        ("https://me@github.com:443/x", "github.com"),
        ("https://git.example.com:8443/x", "git.example.com:8443"),
        ("ssh://git@example.com:22/x", "example.com"),
        ("ssh://git@example.com:443/x", "example.com:443"),
        ("git@example.com:team/code", "example.com"),
        ("git@example.com:443/code", "example.com"),
        ("git://example.com/x", ""),
        ("file:///srv/x", ""),
        ("/srv/x", ""),
        ("https://good.com@evil.com/x", "evil.com"),
        ("https://good.com\\@evil.com/x", ""),
        ("https://good.com%2f@evil.com/x", "evil.com"),
        ("https://evil.com/@good.com/x", "evil.com"),
        ("https://evil.com#@good.com/x", ""),
        ("https://evil.com?@good.com/x", ""),
        ("https://good.com@evil@host/x", ""),
        ("https://host:0/x", ""),
        ("https://host:99999/x", ""),
        ("https://[::1]/x", ""),
        ("https://host\n/x", ""),
        ("https:///x", ""),
    ],
)
def test_the_host_of_an_address(url, host):
    assert host_of(url) == host


def test_each_tenant_has_its_own():
    assert credential_of("https://host/x", "default") == "git@host"
    assert credential_of("https://host/x", "lab") == "lab/git@host"
    assert credential_file("lab/git@host") == "@lab/git@host"
    # As in what an earlier version wrote down, which does not say whose the attempt is.
    assert credential_of("https://host/x", "") == ""
    assert credential_of("https://host/x", "../lab") == ""


@pytest.mark.parametrize(
    "kept", ["", "git@", "git@../x", "git@a/b", "../git@host", "token", "lab/token", "git@H"]
)
def test_no_other_file_is_a_credential(kept):
    assert credential_file(kept) is None


def test_a_job_cannot_ask_for_one(tmp_path):
    (tmp_path / "git@host").write_text("{}")
    assert secret_file("git@host") is None
    with pytest.raises(MissingSecret):
        secret_values(str(tmp_path), (Secret("X", "git@host"),))


@pytest.mark.parametrize(
    ("text", "host"), [("GitHub.com", "github.com"), ("h:443", "h"), ("h:8443", "h:8443")]
)
def test_hosts(text, host):
    assert checked_host(text, "https") == host
    assert is_credential_name(f"git@{host}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://host",
        "me@host",
        "host/x",
        "-host",
        "h.",
        "a b",
        "h:0",
        "h:x",
        "a" * 250,
        "h\n:1",
        "é.com",
    ],
)
def test_what_is_not_a_host(text):
    with pytest.raises(BadCredential, match="is not a host: give a name such as"):
        checked_host(text, "https")


@pytest.mark.parametrize(
    "credential",
    [GitCredential("me", "t0ken"), GitCredential(ssh_key=KEY), GitCredential(ssh_key=KEY, known_hosts="h k")],
)
def test_a_credential_comes_back_as_it_was_and_is_not_shown(credential):
    assert decode_credential(encode_credential(credential)) == credential
    assert "t0ken" not in repr(credential)
    assert "k3y" not in repr(credential)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"token": "s3cret", "ssh_key": KEY},
        {"token": "s3cret\nhost=evil"},
        {"token": "s3cret", "username": "a\nb"},
        {"token": "s3 cret"},
        {"token": 5},
        {"token": "s3cret", "known_hosts": "x"},
        {"token": "s3cret", "more": "x"},
        {"ssh_key": "s3cret"},
        {"ssh_key": "-----BEGIN PUBLIC KEY-----"},
        {"ssh_key": KEY, "username": "me"},
        {"token": "s3cret" * SIZE_MAX_BYTES},
    ],
)
def test_what_git_cannot_be_given_is_refused_without_quoting_it(members):
    with pytest.raises(BadCredential) as refused:
        decode_credential(json.dumps(members))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("text", ["s3cret", "[]", "null", '"s3cret"', ""])
def test_another_value_is_refused_with_what_to_do(text):
    with pytest.raises(BadCredential, match="windfall secret git HOST") as refused:
        decode_credential(text)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("https://me:t0ken@host/x", True),
        ("https://:t0ken@host/x", True),
        ("ssh://me:t0ken@host/x", True),
        ("https://ghp_0123456789@host/x", True),
        ("https://glpat-0123456789@host/x", True),
        (f"https://{'0123456789abcdef' * 2}@host/x", True),
        ("https://host/x?private_token=t0ken", True),
        ("https://me@host/x", False),
        ("ssh://git@host:22/x", False),
        ("git@host:team/x", False),
        ("https://host:8443/x", False),
        ("https://host/@scope/x:y", False),
    ],
)
def test_an_address_with_a_token_in_it(url, has):
    assert carries_secret(url) is has
