"""What a job leaves in its private directory is told at its end, and kept if it asked for that.

Run against a daemon of the user who runs the tests, root where it can be, and against one of an ordinary user.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.test_storage_rights import as_an_ordinary_user
from tests.waiting import wait_until

LEAVE = (
    "echo weights > model.pt; mkdir -p results/day .cache; echo 1 > results/day/1; echo c > .cache/c;"
    " echo > log.txt"
)


@pytest.fixture(scope="module", params=["own", "ordinary"])
def running(request: pytest.FixtureRequest) -> Iterator[RunningWindfall]:
    daemon = RunningWindfall("--vcpus", "8", "--memory-mib", "8192", "--gpus", "none")
    try:
        if request.param == "ordinary":
            as_an_ordinary_user(daemon)
        daemon.root.chmod(0o777)
        yield daemon.up()
    finally:
        daemon.close()


def test_files_that_are_thrown_away_are_named(running):
    done = running.windfall("run", "--clean", "--name", "left", "--", "sh", "-c", LEAVE)
    assert (
        "3 files (11 B) in the job's private directory were removed with it: log.txt, model.pt,"
        in done.stderr
    )
    assert "keep such files with `windfall run --keep PATTERN`" in done.stderr
    described = " ".join(running.windfall("describe", "left").stdout.split())
    assert "3 files (11 B) in the job's private directory were removed with it" in described


def test_nothing_is_said_where_nothing_is_lost(running):
    done = running.windfall("run", "--clean", "--", "sh", "-c", "mkdir .cache d; echo c > .cache/c")
    assert "removed with it" not in done.stderr
    place = running.root / "own-directory"
    place.mkdir()
    place.chmod(0o777)
    done = running.windfall("run", "--dir", str(place), "--", "sh", "-c", LEAVE)
    assert "removed with it" not in done.stderr
    assert (place / "model.pt").read_text() == "weights\n"


@pytest.mark.parametrize("code", [0, 3])
def test_what_matches_is_kept_and_fetched(running, code):
    hostile = "ln -s /etc/passwd x.pt; mkfifo y.pt"
    keep = ["--keep", "*.pt", "--keep", "results/"]
    name = f"kept-{code}"
    script = f"{LEAVE}; {hostile}; exit {code}"
    done = running.windfall("run", "--clean", "--name", name, *keep, "--", "sh", "-c", script, check=False)
    assert done.returncode == code, done.stderr
    assert "1 file (1 B) in the job's private directory was removed with it: log.txt;" in done.stderr
    place = running.root / name
    assert "kept (2 files" in running.windfall("get", name, str(place)).stdout
    kept = place / "outputs" / "kept"
    assert sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()) == [
        "model.pt",
        "results/day/1",
    ]
    assert (kept / "model.pt").read_text() == "weights\n"


def test_each_child_of_an_array_keeps_its_own(running):
    script = "echo $AWS_BATCH_JOB_ARRAY_INDEX > out"
    arguments = ["--clean", "--keep", "out", "--array", "2", "--name", "array", "--", "sh", "-c", script]
    running.windfall("run", *arguments)
    place = running.root / "of-array"
    running.windfall("get", "array", str(place), "--only", "outputs")
    for number in range(2):
        assert (place / str(number) / "outputs" / "kept" / "out").read_text() == f"{number}\n"


def test_kept_files_go_with_checkpoints_and_are_not_restored(running):
    script = 'echo 1 > "$WINDFALL_CHECKPOINT_DIR/step"; echo 2 > out; ls "$WINDFALL_CHECKPOINT_DIR"'
    arguments = ["--clean", "--checkpoint", "--keep", "out", "--name", "both", "--", "sh", "-c", script]
    assert running.windfall("run", *arguments).stdout == "step\n"
    again = running.windfall("retry", "--all", "both").stdout.strip()
    running.wait_for([again])
    assert running.windfall("logs", again).stdout == "step\n"


def test_files_are_kept_until_storage_is_back(running):
    objects = running.data / "objects"
    arguments = ["--clean", "--keep", "*.pt", "--name", "late", "--detach"]
    wait = "while ! test -e go; do sleep 0.1; done"
    job = running.windfall("run", *arguments, "--", "sh", "-c", f"echo w > a.pt; {wait}").stdout.strip()
    running.wait_for([job], "RUNNING")
    objects.rename(objects.with_name("away"))
    try:
        [directory] = [path.parent for path in (running.data / "attempts").glob("*/a.pt")]
        (directory / "go").touch()
        attempts = lambda: running.windfall("describe", "--json", job).stdout  # noqa: E731 (asked again and again)
        wait_until(lambda: json.loads(attempts())["status"] in ("RUNNING", "FAILED"), "the process to end")
    finally:
        objects.with_name("away").rename(objects)
    running.wait_for([job])
    place = running.root / "late"

    def fetched() -> bool:
        done = running.windfall("get", job, str(place), "--only", "outputs", check=False)
        return done.returncode == 0

    wait_until(fetched, "the file to be stored", interval_s=0.5)
    assert (place / "outputs" / "kept" / "a.pt").read_text() == "w\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--keep", "x"], "add --clean or --git"),
        (["--clean", "--keep", "../x"], "must name files below the job's own directory"),
        (["--clean", "--keep", "x", "--image", "i"], "cannot look into a container"),
    ],
)
def test_what_cannot_be_kept_is_refused(running, arguments, said):
    refused = running.windfall("run", *arguments, "--", "true", check=False)
    assert refused.returncode in (1, 2)
    assert said in refused.stderr


NAMES = r"""
open(b"bad\xff.pt", "w").write("bytes")
open("a.pt", "w").write("text")
open("esc\x1b[31m\nwindfall: forged.txt", "w").write("x")
"""


def test_names_that_a_job_chose_cost_no_file_and_forge_no_line(running):
    done = running.windfall(
        "run", "--clean", "--keep", "*.pt", "--name", "names", "--", "python3", "-c", NAMES
    )
    assert not [line for line in done.stderr.splitlines() if line.startswith("windfall: forged")]
    assert "\x1b" not in done.stderr
    place = running.root / "names"
    running.windfall("get", "names", str(place))
    got = {path.name: path.read_text() for path in (place / "outputs" / "kept").iterdir()}
    assert got == {r"bad\xff.pt": "bytes", "a.pt": "text"}
