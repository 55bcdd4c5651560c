"""Neither an address nor a revision can be anything but that."""

from __future__ import annotations

import pytest

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.git import checked_revision, checked_url


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
    assert checked_url(url) == url


def test_a_path_is_a_repository_on_this_machine():
    assert checked_url("/srv/repo") == "file:///srv/repo"


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
    with pytest.raises(CannotBring, match="is no repository"):
        checked_url(url)


@pytest.mark.parametrize("revision", ["main", "v1.0", "feature/x", "0" * 40, "HEAD~1", "release+1"])
def test_revisions(revision: str):
    assert checked_revision(revision) == revision


@pytest.mark.parametrize(
    "revision", ["-f", "--help", "a..b", "a b", "", ":/text", "a:b", "x" * 300, "+refs/*"]
)
def test_no_revisions(revision: str):
    with pytest.raises(CannotBring, match="is no revision"):
        checked_revision(revision)
