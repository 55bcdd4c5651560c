"""The directory that a submitter names is opened with the rights of the job's user, and with no others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from windfall.agent.credentials import JobUser
from windfall.agent.entering import enter_as
from windfall.agent.errors import CannotStart

MYSELF = JobUser("me", os.geteuid(), os.getegid(), (), drop=False)
NOBODY = JobUser("nobody", 65534, 65534, (65534,), drop=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="windfall-entering-") as made:
        root = Path(made)
        root.chmod(0o755)
        yield root


@pytest.fixture
def user(request, require) -> JobUser:
    if request.param is NOBODY:
        require(os.geteuid() == 0, "only root can open a directory as another user")
    return request.param


as_both = pytest.mark.parametrize("user", [MYSELF, NOBODY], ids=["oneself", "nobody"], indirect=True)
as_nobody = pytest.mark.parametrize("user", [NOBODY], indirect=True)


def enter(user: JobUser, path: Path, *hidden: Path) -> str:
    entered = enter_as(user, str(path), map(str, hidden))
    try:
        status = os.fstat(entered.fd)
        assert entered.identity == f"{status.st_dev}:{status.st_ino}"
        return entered.path
    finally:
        os.close(entered.fd)


@as_both
def test_a_directory_is_opened_and_known_by_its_real_path(place, user):
    (place / "work").mkdir()
    (place / "link").symlink_to("work")
    assert enter(user, place / "link") == str(place / "work")


@as_both
@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_refused(place, user, name):
    (place / "file").touch()
    with pytest.raises(CannotStart, match=f'chdir ".*{name}": no'):
        enter(user, place / name)


@as_both
def test_a_name_that_is_no_text_is_refused(user):
    with pytest.raises(CannotStart, match="invalid argument"):
        enter_as(user, "/half of a character: \ud800", ())


@as_nobody
@pytest.mark.parametrize("closed", ["home", "home/open"])
def test_what_the_user_cannot_reach_is_refused_though_root_could(place, user, closed):
    (place / "home" / "open").mkdir(parents=True)
    (place / "home" / "open").chmod(0o777)
    (place / "home").chmod(0o700)
    with pytest.raises(CannotStart, match="permission denied"):
        enter(user, place / closed)
    assert (os.geteuid(), os.getegid()) == (0, os.getegid()), "the agent keeps its own rights"
    (place / "home" / "made").mkdir()


@as_nobody
def test_the_groups_of_the_user_count_and_those_of_the_agent_do_not(place, user):
    (place / "team").mkdir()
    os.chown(place / "team", 0, 4711)
    (place / "team").chmod(0o750)
    with pytest.raises(CannotStart, match="permission denied"):
        enter(user, place / "team")
    member = JobUser("nobody", 65534, 65534, (65534, 4711), drop=True)
    assert enter(member, place / "team") == str(place / "team")


@as_both
def test_what_windfall_keeps_for_itself_is_refused_by_any_name(place, user):
    (place / "data" / "attempts").mkdir(parents=True)
    (place / "link").symlink_to("data/attempts")
    for name in ("data", "data/attempts", "link"):
        with pytest.raises(CannotStart, match="data directory of Windfall"):
            enter(user, place / name, place / "data")
    assert enter(user, place, place / "data") == str(place)
