"""What a job with a /tmp of its own sees of the host's: what it names, and what its user may have."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from windfall.agent.credentials import JobUser
from windfall.agent.own_tmp import TmpView, named_paths, view_of_tmp

MYSELF = JobUser("me", os.geteuid(), os.getegid(), (), drop=False)
NOBODY = JobUser("nobody", 65534, 65534, (65534,), drop=True)


@pytest.fixture
def project() -> Iterator[Path]:
    """A directory directly below /tmp that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="windfall-own-", dir="/tmp") as made:
        place = Path(made)
        place.chmod(0o755)
        yield place


def view(
    *paths: object, user: JobUser = MYSELF, hidden: tuple[str, ...] = (), owners: frozenset[int] | None = None
) -> TmpView:
    return view_of_tmp(map(str, paths), user, hidden, owners=owners)


def test_paths_are_words_of_the_command_and_parts_of_variables():
    argv = ["/tmp/a/python", "train.py", "--data=/tmp/b/x", "cat /tmp/not-a-word", "--lr=0.1"]
    environment = {"PATH": "/usr/bin:/tmp/c/bin", "HOME": "/tmp/d/", "NOTE": "see /tmp/e"}
    assert named_paths(argv, environment) == ["/tmp/a/python", "/tmp/b/x", "/usr/bin", "/tmp/c/bin", "/tmp/d"]


def test_the_whole_directory_below_tmp_is_shown_once(project: Path):
    (project / "venv").mkdir()
    seen = view(project / "venv" / "bin", project / "train.py", "/tmp", "/usr/bin", "/tmp/windfall-missing")
    status = project.stat()
    assert [(shown.path, shown.identity) for shown in seen.shown] == [
        (str(project), f"{status.st_dev}:{status.st_ino}")
    ]


def test_no_path_leads_out_of_tmp_by_its_dots(project: Path):
    assert view(f"{project}/../../etc/passwd", "/tmp/..", "/tmp/../tmp").shown == ()


def test_a_file_is_shown_and_a_socket_is_not(tmp_path: Path):
    with tempfile.TemporaryDirectory(prefix="windfall-own-", dir="/tmp") as made:
        address = f"{made}.sock"
        with tempfile.NamedTemporaryFile(dir="/tmp") as script, socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            try:
                seen = view(script.name, address)
            finally:
                Path(address).unlink()
    assert [shown.path for shown in seen.shown] == [script.name]
    assert "not a plain file" in (seen.problem(address) or "")


def test_a_link_is_shown_as_a_link_with_what_it_leads_to(project: Path):
    links = [Path(f"{project}.link"), Path(f"{project}.away"), Path(f"{project}.self")]
    for link, target in zip(links, (project.name, "/etc/secret", f"{project.name}.self"), strict=True):
        link.symlink_to(target)
    try:
        seen = view(*(link / "x" for link in links))
    finally:
        for link in links:
            link.unlink()
    assert [(shown.path, shown.target) for shown in seen.shown] == [
        (str(links[0]), project.name),
        (str(links[1]), "/etc/secret"),
        (str(links[2]), f"{project.name}.self"),
        (str(project), None),
    ]


def test_what_windfall_keeps_for_itself_is_not_shown_because_the_job_is_there(project: Path):
    data = str(project / "data")
    assert view(f"{data}/attempts/job", hidden=(data,)).shown == ()
    assert view(project, hidden=(str(project),)).shown == ()
    assert [shown.path for shown in view(project, hidden=(data,)).shown] == [str(project)]


def test_where_other_tenants_have_jobs_the_owner_counts(project: Path):
    own = project.stat().st_uid
    assert view(project, owners=frozenset({own})).shown
    seen = view(project, owners=frozenset({own + 1}))
    assert seen.shown == ()
    problem = seen.problem(f"{project}/venv/bin/python") or ""
    assert f"does not see {project} of the host, because other tenants have jobs here" in problem
    assert problem.endswith("move it out of /tmp")


def test_the_rights_of_the_jobs_user_count(project: Path, require):
    require(os.geteuid() == 0, "only root can look as another user")
    assert view(project, user=NOBODY).shown
    project.chmod(0o700)
    seen = view(project, user=NOBODY)
    assert seen.shown == ()
    assert "nobody cannot enter it (permission denied)" in (seen.problem(f"{project}/python") or "")
    assert os.geteuid() == 0


def test_a_long_command_does_not_take_long(tmp_path: Path):
    with tempfile.TemporaryDirectory(prefix="windfall-own-", dir="/tmp") as made:
        places = [Path(f"{made}-{number}") for number in range(40)]
        for place in places:
            place.mkdir()
        try:
            assert len(view(*places).shown) == 32
        finally:
            for place in places:
                place.rmdir()
