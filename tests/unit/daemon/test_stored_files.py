"""What of a job's files is handed out, and what is refused, over real storage on a disk."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.settings import Settings
from windfall.daemon.stored_files import READ_BYTES, READS_MAX, StorageReaders, StoredFiles
from windfall.jobs.staging import Checkpoints, Output, Staging
from windfall.jobs.submitters import Submitter

CALLER = Caller("AKIAREADER", Role.READ, "default")


class Place:
    """A job with a checkpoint prefix and two outputs on this disk."""

    def __init__(self, root: Path, submitter: Submitter) -> None:
        self.world = a_busy_world()
        submitted = a_job("a")
        self.world.submits(replace(submitted, command=replace(submitted.command, submitter=submitter)))
        job = self.world.job("a")
        self.objects = root / "data" / "objects" / "checkpoints" / "a"
        self.outside = root / "data" / "objects" / "secret"
        outputs = (
            Output("/opt/ml/model", f"{self.objects.as_uri()}.out/model.tar.gz"),
            Output("/opt/ml/data", f"{self.objects.as_uri()}.out/plain", archived=False),
        )
        staging = Staging(Checkpoints(self.objects.as_uri()), outputs=outputs)
        job.submission = replace(job.submission, staging=staging)
        for path in (
            "a/.windfall/chunks/ab/x",
            "a/plain",
            "a.out/model.tar.gz",
            "a.out/other",
            "a.out/plain/p",
        ):
            self.put(path, b"content")
        self.outside.write_bytes(b"secret")
        settings = Settings(root / "data", objects=f"file://{root}/data/objects")
        storage = ObjectStorage(settings, {})
        self.files = StoredFiles(self, StorageReaders(storage, root / "data" / "objects.json"))

    def put(self, path: str, content: bytes) -> Path:
        target = self.objects.parent / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return target

    async def read(self, question: Any) -> Any:
        known = {"a": self.world.job("a")}
        store = SimpleNamespace(
            jobs=lambda ids: [known[one] for one in ids if one in known],
            declared=lambda _: [],
            definition=lambda _: None,
        )
        return question(store)

    def ask(self, operation: str, **params: Any) -> Any:
        call = Call("windfall", operation, {"jobId": "a", **params}, CALLER, "r", "1", 0)
        return asyncio.run(_whole(getattr(self.files, operation)(call)))


async def _whole(answering: Any) -> Any:
    answer = await answering
    if not isinstance(answer, Response):
        return answer
    parts = [answer.body]
    if answer.more is not None:
        parts += [part async for part in answer.more]
    return b"".join(parts)


@pytest.fixture(params=[True, False], ids=["of an admin", "of a submit key"])
def place(request, tmp_path):
    return Place(tmp_path, Submitter("default", "AKIAOLD", request.param))


def rows(content: bytes) -> list[Any]:
    *listed, last = map(json.loads, content.splitlines())
    assert last == {"end": True}
    return [row[0] for row in listed]


def test_a_listing_shows_the_checkpoint_area_alone(place):
    assert rows(place.ask("list", part="checkpoint")) == [".windfall/chunks/ab/x"]
    assert rows(place.ask("list", part="output", output=0)) == ["model.tar.gz"]
    assert rows(place.ask("list", part="output", output=1)) == ["p"]


def test_a_long_listing_comes_in_parts(place):
    for number in range(2_500):
        place.put(f"a/.windfall/chunks/cd/{number}", b"")
    assert len(rows(place.ask("list", part="checkpoint"))) == 2_501


def test_ranges_come_one_after_the_other(place):
    key = ".windfall/chunks/ab/x"
    assert (
        place.ask("read", part="checkpoint", reads=[[key, 0, 3], [key, 3, 100], [key, 50, 60]]) == b"content"
    )
    assert place.ask("read", part="output", output=0, reads=[["model.tar.gz", 0, 7]]) == b"content"


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ({"part": "checkpoint"}, "plain"),
        ({"part": "checkpoint"}, ".windfall"),
        ({"part": "checkpoint"}, ".windfall/../plain"),
        ({"part": "checkpoint"}, ".windfall/../../../secret"),
        ({"part": "checkpoint"}, "/etc/passwd"),
        ({"part": "checkpoint"}, ""),
        ({"part": "output", "output": 0}, "other"),
        ({"part": "output", "output": 0}, "plain/p"),
        ({"part": "output", "output": 1}, "../other"),
        ({"part": "output", "output": 1}, "missing"),
    ],
)
def test_nothing_else_can_be_read(place, part, key):
    with pytest.raises(ApiError) as refused:
        place.ask("read", **part, reads=[[key, 0, 7]])
    assert refused.value.status in (400, 404)


def test_no_link_is_followed(place):
    found = place.put("a/.windfall/chunks/ab/y", b"")
    found.unlink()
    found.symlink_to(place.outside)
    directory = place.objects / ".windfall" / "writers"
    directory.symlink_to(place.outside.parent)
    for key in (".windfall/chunks/ab/y", ".windfall/writers/secret"):
        with pytest.raises(ApiError):
            place.ask("read", part="checkpoint", reads=[[key, 0, 6]])
    assert rows(place.ask("list", part="checkpoint")) == [".windfall/chunks/ab/x"]


@pytest.mark.parametrize(
    "params",
    [
        {"part": "checkpoint"},
        {"part": "checkpoint", "reads": []},
        {"part": "checkpoint", "reads": "all"},
        {"part": "checkpoint", "reads": [["k", 0]]},
        {"part": "checkpoint", "reads": [["k", -1, 5]]},
        {"part": "checkpoint", "reads": [["k", 5, 1]]},
        {"part": "checkpoint", "reads": [["k", 0, True]]},
        {"part": "checkpoint", "reads": [[7, 0, 1]]},
        {"part": "checkpoint", "reads": [["k", 0, READ_BYTES + 1]]},
        {"part": "checkpoint", "reads": [["k", 0, 2**70]]},
        {"part": "checkpoint", "reads": [["k", 0, 1]] * (READS_MAX + 1)},
        {"part": "logs", "reads": [["k", 0, 1]]},
        {"part": "output", "reads": [["k", 0, 1]]},
        {"part": "output", "output": True, "reads": [["k", 0, 1]]},
        {"part": "output", "output": -1, "reads": [["k", 0, 1]]},
        {"part": "output", "output": 2, "reads": [["k", 0, 1]]},
        {"jobId": None, "part": "checkpoint"},
        {"jobId": "b", "part": "checkpoint", "reads": [["k", 0, 1]]},
    ],
)
def test_wrong_forms_are_refused(place, params):
    with pytest.raises(ApiError) as refused:
        place.ask("read", **params)
    assert refused.value.status in (400, 404)


def test_a_place_that_the_submitter_may_not_use_any_more_is_refused(tmp_path):
    place = Place(tmp_path, Submitter("default", "AKIAOLD", is_admin=False))
    elsewhere = tmp_path / "elsewhere" / ".windfall"
    elsewhere.mkdir(parents=True)
    job = place.world.job("a")
    job.submission = replace(job.submission, staging=Staging(Checkpoints(elsewhere.parent.as_uri())))
    with pytest.raises(ApiError, match="may not read"):
        place.ask("list", part="checkpoint")


def test_what_there_is_is_described(place):
    answer = place.ask("describe")
    assert answer["checkpointUri"] == place.objects.as_uri()
    assert answer["outputs"] == [
        {"name": "model.tar.gz", "isArchive": True},
        {"name": "plain", "isArchive": False},
    ]
    with pytest.raises(ApiError, match="There is no job b"):
        place.ask("describe", jobId="b")
