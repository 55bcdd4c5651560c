"""Neither an address nor a revision can be anything but that."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.git import Checkout, checked_revision, checked_url, told_by_git


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/team/repo.git",
        "ssh://git@example.com/repo",
        "git://example.com/repo",
        "file:///srv/repo",
        "git@example.com:team/repo.git",
    ],
)
def test_repositories(url: str):
    assert checked_url(url, local=True) == url


def test_a_path_is_a_repository_on_this_machine():
    assert checked_url("/srv/repo", local=True) == "file:///srv/repo"


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch",
        "-x",
        "ext::sh -c id",
        "fd::3",
        "http://example.com/repo",
        "ssh://-oProxyCommand=id/x",
        "https://",
        "repo",
        "../repo",
        "user@host:-x",
        "https://example.com/a b",
        "https://example.com/a\nb",
        "",
    ],
)
def test_anything_else_is_refused(url: str):
    with pytest.raises(CannotBring, match="is not a repository"):
        checked_url(url, local=True)


@pytest.mark.parametrize("url", ["/etc", "file:///srv/repo", "file://localhost/srv/repo", "file:relative"])
def test_paths_of_the_host_are_for_jobs_that_may_read_it(url: str):
    with pytest.raises(CannotBring):
        checked_url(url, local=False)


def test_git_itself_refuses_what_an_address_leads_to(tmp_path: Path, require):
    """A redirection or a submodule names what no check of ours has seen."""
    require(shutil.which("git") is not None, "git is not installed")
    (tmp_path / "code").mkdir()
    checkout = Checkout(str(tmp_path / "code"), str(tmp_path), None, {})
    protocols = checkout.environment["GIT_ALLOW_PROTOCOL"].split(":")
    assert protocols == ["https", "ssh", "git"]
    asked = subprocess.run(
        ["git", "ls-remote", f"file://{tmp_path}"],
        env=checkout.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "transport 'file' not allowed" in asked.stderr


@pytest.mark.parametrize("revision", ["main", "v1.0", "feature/x", "0" * 40, "HEAD~1", "release+1"])
def test_revisions(revision: str):
    assert checked_revision(revision) == revision


@pytest.mark.parametrize(
    "revision", ["-f", "--help", "a..b", "a b", "", ":/text", "a:b", "x" * 300, "+refs/*"]
)
def test_no_revisions(revision: str):
    with pytest.raises(CannotBring, match="is not a revision"):
        checked_revision(revision)


def test_what_git_tells_is_said_whole_and_without_its_general_advice():
    ssh = (
        "git@host: Permission denied (publickey).\r\nfatal: Could not read from remote repository.\n\n"
        "Please make sure you have the correct access rights\nand the repository exists.\n"
    )
    assert told_by_git(ssh) == (
        "git@host: Permission denied (publickey).; fatal: Could not read from remote repository.; it does not exist,"
        " or it is private and this machine has no access to it"
    )
    assert told_by_git("fatal: unable to access 'https://me:tok@host/x/': no route\n") == (
        "fatal: unable to access 'https://***@host/x/': no route"
    )
    assert told_by_git(" \n") == "it gave no reason"


def test_a_bad_address_is_refused_without_its_token():
    with pytest.raises(CannotBring) as refused:
        checked_url("http://me:tok3n@example.com/repo", local=False)
    assert "tok3n" not in str(refused.value)


@pytest.mark.parametrize("revision", ["main", "0" * 40])
def test_a_fetch_that_fails_shows_no_token(tmp_path, revision: str, require):
    require(shutil.which("git") is not None, "git is not installed")
    (tmp_path / "code").mkdir()
    checkout = Checkout(str(tmp_path / "code"), str(tmp_path), None, {})
    with pytest.raises(
        CannotBring, match=r"git cannot fetch https://\*\*\*@127\.0\.0\.1:9/team/code: "
    ) as refused:
        checkout.bring("https://me:tok3n@127.0.0.1:9/team/code", revision)
    assert "tok3n" not in str(refused.value)
    assert "repository exists" not in str(refused.value)
