"""The program that runs on a bare host: what it refuses to install, and what it leaves and removes."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from windfall.engines.hosts.host_side import Refusal, boot_id, install, look, remove


def an_archive(*members: tarfile.TarInfo) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return content.getvalue()


def a_member(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc"
    return member


def installed(base: Path, archive: bytes, **changes: Any) -> dict[str, Any]:
    sha256 = hashlib.sha256(archive).hexdigest()
    request = {
        "base": str(base),
        "name": "site-1",
        "size": len(archive),
        "sha256": sha256,
        "requirements": [],
    }
    return install({**request, **changes}, io.BytesIO(archive))


def test_it_says_what_the_host_is(tmp_path: Path):
    seen = look({"base": str(tmp_path / "not" / "there")}, io.BytesIO())
    assert (seen["base"], seen["uid"]) == (str(tmp_path / "not" / "there"), os.getuid())
    assert seen["free_bytes"] > 0
    assert seen["boot_id"] == boot_id()


def test_what_did_not_arrive_whole_is_not_installed(tmp_path: Path):
    archive = an_archive(a_member("windfall/__init__.py"))
    for changes in ({"sha256": "0" * 64}, {"size": len(archive) + 1}):
        with pytest.raises(Refusal, match="did not arrive whole"):
            installed(tmp_path, archive, **changes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "member",
    [
        a_member("../evil"),
        a_member("/etc/evil"),
        a_member("link", tarfile.SYMTYPE),
        a_member("d", tarfile.DIRTYPE),
    ],
)
def test_only_plain_files_below_the_folder_are_unpacked(tmp_path: Path, member: tarfile.TarInfo):
    base = tmp_path / "base"
    with pytest.raises(Refusal, match="something unexpected"):
        installed(base, an_archive(member))
    assert [path.name for path in base.iterdir()] == [".lock"], "nothing half done is left"
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_what_cannot_be_loaded_gets_no_name(tmp_path: Path):
    with pytest.raises(Refusal, match="cannot be loaded there"):
        installed(tmp_path, an_archive(a_member("windfall/__init__.py")))
    assert not (tmp_path / "site-1").exists()


class Left:
    """What an agent that has ended left on a host."""

    def __init__(self, base: Path) -> None:
        self.base, self.root = base, base / "agents" / "id" / "box"
        (self.root / "agent").mkdir(parents=True)
        (self.root / "attempts" / "a").mkdir(parents=True)
        (base / "site-1" / "windfall").mkdir(parents=True)
        (base / "site-1" / "windfall" / "__init__.py").touch()

    def removed(self, *, force: bool = False) -> str:
        request = {"base": str(self.base), "root": str(self.root), "force": force}
        return str(remove(request, io.BytesIO())["kept"])


def test_with_its_last_agent_go_the_installations(tmp_path: Path):
    left = Left(tmp_path / "base")
    other = tmp_path / "base" / "agents" / "id" / "other"
    other.mkdir()
    assert left.removed() == ""
    assert (tmp_path / "base" / "site-1").exists(), "another agent runs from it"
    left.root = other
    assert left.removed() == ""
    assert not (tmp_path / "base" / "site-1").exists()
    assert left.removed() == "", "what is gone need not be removed"


def test_files_of_jobs_that_were_not_stored_stay_unless_forced(tmp_path: Path):
    left = Left(tmp_path)
    (left.root / "attempts" / "a" / "result").touch()
    assert "were not stored" in left.removed()
    assert (left.root / "attempts" / "a" / "result").exists()
    assert left.removed(force=True) == ""
    assert not left.root.exists()


def test_nothing_is_taken_from_an_agent_that_runs(tmp_path: Path):
    left = Left(tmp_path)
    with (left.root / "agent" / "warden.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert left.removed(force=True) == "its agent still runs"
    assert left.removed() == ""
