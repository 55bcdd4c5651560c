"""What a job has stored, as the page lists and reads it; and its own numbers, told in each of the four ways."""

from __future__ import annotations

import getpass
import json
import sys

import pytest

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.page_client import a_key, ask, fetch, signed_headers, the_session
from tests.tidy.tree import ROOT

#: Stores a checkpoint of 20 MB, more than one piece, and a name that would do harm as markup or on a terminal.
SAVES = r"""
cd "$WINDFALL_CHECKPOINT_DIR"
mkdir -p "step/<img src=x>" && echo hostile > "step/<img src=x>/$(printf 'a\033[2J')"
head -c 20000000 /dev/zero | tr '\0' m > model
"""
#: Tells its numbers by lines of JSON, by windfall.checkpoint, and by an event file.
TELLS = r"""
import json, os, pathlib, sys, time
sys.path.insert(0, TESTS)
import event_writer
import windfall.checkpoint as ckpt
run = ckpt.open(every=1)
run.track(numbers=[])
step = run.resume()
events = pathlib.Path(os.environ["WINDFALL_CHECKPOINT_DIR"]) / "runs" / "events.out.tfevents.1.host"
events.parent.mkdir(exist_ok=True)
while step < 5:
    step += 1
    print(json.dumps({"step": step, "accuracy": step / 5}), flush=True)
    with events.open("ab") as file:
        file.write(event_writer.a_scalar("train/loss", 1 / step, step, time.time()))
    run.step(step, loss=1 / step)
run.done()
"""


def read(windfall, session, job_id, file, start=0, **other):
    asked = {
        "jobId": job_id,
        "start": start,
        **{key: file[key] for key in ("part", "output", "path", "content")},
    }
    body = json.dumps({**asked, **other}).encode()
    path = "/windfall/v1/ReadFile"
    return fetch(windfall, "POST", path, signed_headers(windfall, session, path, body), body)


def whole(windfall, session, job_id, file):
    content = b""
    while True:
        status, headers, part = read(windfall, session, job_id, file, len(content))
        assert status == 200, part
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"] == "attachment"
        content += part
        if not part:
            return content


@pytest.fixture(scope="module")
def job_id(windfall):
    run = windfall.windfall(
        "run", "-d", "--checkpoint", "--clean", "--name", "saves", "--", "sh", "-c", SAVES
    )
    job_id = run.stdout.split()[-1]
    windfall.wait_for([job_id])
    return job_id


def test_files_are_listed_and_read_piece_by_piece(windfall, job_id):
    session = the_session(windfall)
    status, answer = ask(windfall, session, "ListFiles", jobId=job_id)
    assert (status, answer["leftOut"], answer["problems"]) == (200, 0, [])
    files = {file["path"]: file for file in answer["files"]}
    assert set(files) == {"model", "step/<img src=x>/a\x1b[2J"}
    assert answer["checkpoint"]["bytes"] == sum(file["bytes"] for file in files.values())
    assert whole(windfall, session, job_id, files["model"]) == b"m" * 20_000_000
    assert whole(windfall, session, job_id, files["step/<img src=x>/a\x1b[2J"]) == b"hostile\n"


def test_a_log_is_a_file_too(windfall):
    run = windfall.windfall("run", "-d", "--clean", "--", "sh", "-c", "echo one; echo two")
    job_id = run.stdout.split()[-1]
    windfall.wait_for([job_id])
    session = the_session(windfall)
    [file] = ask(windfall, session, "ListFiles", jobId=job_id)[1]["files"]
    assert (file["part"], file["path"], file["bytes"]) == ("log", "attempt-1.log", 8)
    assert whole(windfall, session, job_id, file) == b"one\ntwo\n"


@pytest.mark.parametrize(
    "changed",
    [
        {"path": "../../keys.json"},
        {"path": "/etc/passwd"},
        {"path": ".windfall/fence"},
        {"path": "model\0"},
        {"content": "0" * 32},
        {"part": "output", "output": 0},
        {"part": "log", "path": "../attempt-1.log"},
        {"part": "nothing"},
        {"start": -1},
        {"start": "0"},
        {"path": 3},
    ],
    ids=str,
)
def test_nothing_else_can_be_read(windfall, job_id, changed):
    session = the_session(windfall)
    file = next(
        it for it in ask(windfall, session, "ListFiles", jobId=job_id)[1]["files"] if it["path"] == "model"
    )
    status, _, content = read(windfall, session, job_id, file, **changed)
    assert status in (400, 404, 409), content
    assert json.loads(content)["message"]


def test_another_tenant_has_no_such_files(windfall, job_id):
    file = ask(windfall, the_session(windfall), "ListFiles", jobId=job_id)[1]["files"][0]
    stranger = the_session(windfall, key=a_key(windfall, "--role", "submit", "--tenant", "stranger"))
    assert ask(windfall, stranger, "ListFiles", jobId=job_id)[0] == 404
    assert read(windfall, stranger, job_id, file)[0] == 404


def metrics_of(windfall, session, job_id):
    [attempt] = ask(windfall, session, "JobMetrics", jobId=job_id)[1]["attempts"]
    return {(series["name"], series["source"]): series for series in attempt["series"]}


@pytest.fixture
def windfall_of_this_user():
    """A daemon whose jobs can read this repository."""
    running = RunningWindfall("--vcpus", "2", "--memory-mib", "2048", "--job-user", getpass.getuser())
    try:
        yield running.up()
    finally:
        running.close()


def test_json_lines_the_library_and_event_files_become_curves(windfall_of_this_user):
    windfall, program = windfall_of_this_user, TELLS.replace("TESTS", repr(str(ROOT / "tests")))
    run = windfall.windfall("run", "-d", "--checkpoint", "--clean", "--", sys.executable, "-c", program)
    job_id = run.stdout.split()[-1]
    windfall.wait_for([job_id])
    [attempt] = ask(windfall, the_session(windfall), "JobMetrics", jobId=job_id)[1]["attempts"]
    points = {(it["name"], it["source"]): it["points"] for it in attempt["series"]}
    values = {key: [round(value, 3) for _, _, value in series] for key, series in points.items()}
    assert values["accuracy", "json line"] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert values["train/loss", "tensorboard"] == [1.0, 0.5, 0.333, 0.25, 0.2]
    assert 5 in values["step", "windfall.checkpoint"]
    assert attempt["leftOut"] == 0
