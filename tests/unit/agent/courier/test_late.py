"""What is stored after its attempt has ended, while somebody with the job's rights changes what lies there."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.agent.courier.test_errand import Run
from tests.waiting import wait_until
from windfall.agent.courier.late import LateErrand
from windfall.agent.courier.messages import Store, Stored
from windfall.jobs.staging import Output, Staging

SECRET = "only-the-administrators"
ARCHIVE = Output("/opt/ml/model", "mood://models/model.tar.gz", archived=True)
FILES = Output("/opt/ml/model", "mood://models/files", archived=False)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory that the courier can read and the job must not get."""
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "weights").write_text(SECRET)
    return directory


def an_ended_run(tmp_path: Path, output: Output) -> Run:
    run = Run(tmp_path, Staging(outputs=(output,))).prepared()
    run.write("model/weights", "1234")
    return run


def begin(run: Run, output: Output) -> None:
    LateErrand(Store(run.errand, (output,)), run.settings, run.said.append, run.mood.open).begin()


def stored_text(tmp_path: Path) -> str:
    """Everything that the store holds, archives unpacked."""
    texts = []
    for path in (tmp_path / "store").rglob("*"):
        if path.suffix == ".gz":
            with tarfile.open(path) as archive:
                members = [archive.extractfile(member) for member in archive if member.isfile()]
                texts += [member.read().decode() for member in members if member is not None]
        elif path.is_file():
            texts.append(path.read_text(errors="replace"))
    return "\n".join(texts)


def a_link(place: Path, secrets: Path) -> None:
    place.rename(place.with_name("aside"))
    place.symlink_to(secrets)


def a_file(place: Path, secrets: Path) -> None:
    place.rename(place.with_name("aside"))
    place.write_text("no directory")


def nothing(place: Path, secrets: Path) -> None:
    place.rename(place.with_name("aside"))


@pytest.mark.parametrize("replace", [a_link, a_file, nothing])
@pytest.mark.parametrize("output", [ARCHIVE, FILES], ids=["archive", "files"])
def test_what_was_replaced_is_tried_once_and_kept(
    tmp_path: Path,
    secrets: Path,
    output: Output,
    replace: Callable[[Path, Path], None],
    capfd: pytest.CaptureFixture[str],
):
    run = an_ended_run(tmp_path, output)
    replace(run.root / "model", secrets)
    others = set(threading.enumerate())
    begin(run, output)
    said = ""

    def told() -> bool:
        nonlocal said
        said += "".join(capfd.readouterr())
        return "is not stored" in said

    wait_until(told, "somebody hears of it")
    wait_until(
        lambda: all(thread.name != "t" for thread in set(threading.enumerate()) - others),
        "nothing tries it any more",
    )
    assert f"stays in {run.root}" in said
    assert not run.of(Stored)
    assert (run.root / "aside" / "weights").read_text() == "1234"
    assert SECRET not in stored_text(tmp_path)


@pytest.mark.parametrize("output", [ARCHIVE, FILES], ids=["archive", "files"])
def test_links_that_come_and_go_lead_nowhere(tmp_path: Path, secrets: Path, output: Output):
    """Directories, files and names are swapped with links all the while, and each try is another chance."""
    run = an_ended_run(tmp_path, output)
    model, over = run.root / "model", threading.Event()
    (model / "below").mkdir()
    (model / "below" / "weights").write_text("5678")

    def swap() -> None:
        targets = {"weights": secrets / "weights", "below": secrets}
        while not over.is_set():
            for name, target in targets.items():
                (model / name).rename(run.root / name)
                (model / name).symlink_to(target)
                (model / name).unlink()
                (run.root / name).rename(model / name)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(30):
            run.said.clear()
            begin(run, output)
            wait_until(lambda: run.of(Stored), "it is stored")
            assert SECRET not in stored_text(tmp_path)
    finally:
        over.set()
        swapping.join()
