"""What a staged job sees of its host beside its own files: the name `algo-1`, and whose /tmp."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_agent import House, launched, sandbox_or_skip
from tests.acceptance.test_staging import kept, staged
from windfall.agent.host_names import HOSTS, write_hosts


@pytest.fixture
def sandboxes(tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "house") as built:
        sandbox_or_skip(built.daemon())
        yield built


@pytest.fixture
def in_tmp() -> Iterator[Path]:
    """A directory of the host below /tmp that any user may read."""
    place = Path(tempfile.mkdtemp(prefix="windfall-seen-", dir="/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_a_training_job_finds_its_host_by_sagemakers_name_and_the_host_is_unchanged(sandboxes: House):
    before = Path(HOSTS).read_text()
    daemon = sandboxes.daemon()
    daemon.send(staged(sandboxes, "a", "getent hosts algo-1", kept(sandboxes, wants_ml_root=True)))
    assert daemon.exited("a").exit_code == 0, sandboxes.log("a")
    assert sandboxes.log("a").split() == ["127.0.0.1", "algo-1"]
    assert Path(HOSTS).read_text() == before


def test_the_hosts_own_names_stay_in_the_file(tmp_path: Path):
    written = write_hosts(str(tmp_path))
    assert written is not None
    lines = Path(written).read_text().splitlines()
    assert lines[:-1] == Path(HOSTS).read_text().rstrip().splitlines()
    assert lines[-1] == "127.0.0.1 algo-1"
    assert [path.name for path in tmp_path.iterdir()] == ["hosts"]


@pytest.mark.parametrize(("is_training", "sees"), [(False, "seen"), (True, "hidden")])
def test_only_a_training_job_has_a_tmp_of_its_own(
    sandboxes: House, in_tmp: Path, is_training: bool, sees: str
):
    daemon = sandboxes.daemon()
    look = f"[ -d {in_tmp} ] && echo seen || echo hidden"
    daemon.send(staged(sandboxes, "a", look, kept(sandboxes, wants_ml_root=is_training)))
    assert daemon.exited("a").exit_code == 0
    assert sandboxes.log("a") == f"{sees}\n"


def test_strangers_never_share_tmp_whatever_they_keep(sandboxes: House, in_tmp: Path):
    daemon = sandboxes.daemon()
    look = f"[ -d {in_tmp} ] && echo seen || echo hidden"
    daemon.send(staged(sandboxes, "a", look, kept(sandboxes), needs_sandbox=True))
    assert daemon.exited("a").exit_code == 0
    assert sandboxes.log("a") == "hidden\n"
